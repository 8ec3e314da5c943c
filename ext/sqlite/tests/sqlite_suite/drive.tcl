# testfixture drive.tcl KIND SCRIPT: one of SQLite's own test scripts.
#
# KIND plain: databases have 24 reserved bytes a page, so that they are as large as
# those of the VFS and pages lie where they lie there. KIND vfs: they are opened through
# the VFS by its name. KIND default: the VFS is the default one, and is not named. Where a
# script brings a VFS of its own, as the default one or by name, it is left alone.
set driver [file normalize [info script]]
set kind [lindex $argv 0]
set script [lindex $argv 1]
set argv [list]
set argv0 $script

proc load_pagewarden {} {
  if {$::kind eq "plain"} { return }
  sqlite3_of_sqlite loader :memory:
  sqlite3_enable_load_extension loader 1
  set entry sqlite3_extension_init
  if {$::kind eq "default"} { set entry sqlite3_pagewarden_default_init }
  loader eval {SELECT load_extension($::env(PAGEWARDEN_EXTENSION), $entry)}
  loader close
}

# Each script shuts SQLite down once, before its tests: the default VFS is then the old one again, and what
# was set for new connections is gone.
rename sqlite3_initialize sqlite3_initialize_of_sqlite
proc sqlite3_initialize {} {
  set result [sqlite3_initialize_of_sqlite]
  load_pagewarden
  set result
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
    catch {file_control_reservebytes [lindex $args 0] 24}
  }
  set result
}

# Other processes, which scripts launch to be further clients, have the VFS too: they read this file, without a
# script. (A process that is made to crash is another one, and has not.)
rename source source_of_sqlite
proc source {args} {
  set result [uplevel 1 source_of_sqlite $args]
  if {[info procs launch_testfixture] ne "" && ![string match "*of_sqlite*" [info body launch_testfixture]]} {
    catch {rename launch_testfixture_of_sqlite ""}
    rename launch_testfixture launch_testfixture_of_sqlite
    proc launch_testfixture {args} {
      set channel [uplevel 1 launch_testfixture_of_sqlite $args]
      testfixture $channel [list set argv [list $::kind]]
      testfixture $channel [list source $::driver]
      set channel
    }
  }
  set result
}

load_pagewarden
if {$script ne ""} { source $script }
