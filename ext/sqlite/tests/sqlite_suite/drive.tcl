# testfixture drive.tcl KIND SCRIPT: one of SQLite's own test scripts.
#
# KIND plain: databases have 16 reserved bytes a page, so that they are as large as
# those of the VFS and pages lie where they lie there. KIND vfs: they are opened through
# the VFS. Where a script brings a VFS of its own, as the default one or by name, it is
# left alone.
set kind [lindex $argv 0]
set script [lindex $argv 1]
set argv [list]
set argv0 $script

if {$kind eq "vfs"} {
  sqlite3 loader :memory:
  sqlite3_enable_load_extension loader 1
  loader eval {SELECT load_extension($::env(PAGEWARDEN_EXTENSION))}
  loader close
}

set has_vfs_of_its_own 0
rename testvfs testvfs_of_sqlite
proc testvfs {args} {
  set place [lsearch -glob $args -def*]
  if {$place >= 0 && [lindex $args $place+1]} { set ::has_vfs_of_its_own 1 }
  uplevel 1 testvfs_of_sqlite $args
}

rename sqlite3 sqlite3_of_sqlite
proc sqlite3 {args} {
  set opens [expr {[llength $args] >= 2 && [string index [lindex $args 0] 0] ne "-"}]
  set names_vfs [expr {"-vfs" in $args || [string match "*vfs=*" $args]}]
  if {$opens && $::kind eq "vfs" && !$::has_vfs_of_its_own && !$names_vfs} {
    lappend args -vfs pagewarden
  }
  set result [uplevel 1 sqlite3_of_sqlite $args]
  if {$opens && $::kind eq "plain"} {
    catch {file_control_reservebytes [lindex $args 0] 16}
  }
  set result
}

source $script
