#!/usr/bin/env bash
# Puts what real servers wrote (fixtures/) before the fuzz targets that take
# bytes as they are. Their first bytes say what is done with the others: see
# the targets. Safe to run again: files have the name of their content's origin.
set -euo pipefail
cd "$(dirname "$0")"

# seed TARGET PREFIX FILE: the file as an input, behind bytes in printf's notation.
seed() {
    mkdir -p "corpus/$1"
    local name
    name=$(tr / _ <<<"${3#../fixtures/}")
    # Only the pages at the beginning: an input of a megabyte is a slow one.
    # shellcheck disable=SC2059 # the prefix is a format on purpose
    { printf "$2"; head -c 65536 "$3"; } >"corpus/$1/$name"
}

shopt -s nullglob
for file in ../fixtures/postgres/*/control.*; do
    # Behind the structure and its CRC all is padding.
    mkdir -p corpus/postgres_control
    name=$(tr / _ <<<"${file#../fixtures/}")
    { printf '\0'; head -c 512 "$file"; } >"corpus/postgres_control/$name"
done
for file in ../fixtures/postgres/*/*.map; do
    seed postgres_map '\0' "$file"
done
for file in ../fixtures/postgres/1[58]/*.page; do
    seed postgres_file '\0' "$file"
    seed postgres_file '\6' "$file"
done
# pg_class of pages that are seen by all: oid, name, five numbers, and what follows is not wanted.
for file in ../fixtures/postgres/1[58]/*.page; do
    seed db_heap '\06\02\07\02\02\02\02\02' "$file"
done
for file in ../fixtures/duckdb/*/*.duckdb; do
    # All sums are kept up to date.
    seed duckdb_target '\377' "$file"
done
for kind in '_delta_log/*.json:0' 'metadata/*.json:1' 'metadata/*.avro:2'; do
    for file in ../fixtures/parquet/*/table/${kind%:*}; do
        seed parquet_table "\\${kind#*:}" "$file"
    done
done
# Behind a byte that leaves them as they are.
for file in ../fixtures/parquet/*/*.parquet; do
    seed parquet_target '\0' "$file"
done
for file in ../fixtures/sqlite/*/*.db; do
    seed sqlite_page '\113\10' "$file"
    # The last 200 bytes say what lies beside the database: nothing.
    mkdir -p corpus/sqlite_target
    name=$(tr / _ <<<"${file#../fixtures/}")
    { head -c 65536 "$file"; head -c 200 /dev/zero; } >"corpus/sqlite_target/$name"
done
mkdir -p corpus/postgres_names
for name in 1259 16397.1 16397_fsm 4294967295_vm.131071 16400_init t3_16402 t12_16402_fsm.2 \
    pg_internal.init pg_filenode.map; do
    printf '%s' "$name" >"corpus/postgres_names/$name"
done

mkdir -p corpus/postgres_incremental corpus/postgres_manifest corpus/postgres_archive corpus/tar
# Pages of 8 KiB; blocks 1, 5 and 9 of a file of at least 12.
printf '\3\3\0\0\0\14\0\0\0\1\0\0\0\5\0\0\0\11\0\0\0' >corpus/postgres_incremental/three_blocks
for version in 1 2; do
    # The target appends the sum that fits.
    printf '\1{ "PostgreSQL-Backup-Manifest-Version": %s,\n%s\n%s\n],\n%s\n],' "$version" \
        '"System-Identifier": 7392348932, "Files": [' \
        '{ "Path": "backup_label", "Size": 225, "Last-Modified": "2024-05-01 12:00:00 GMT", "Checksum-Algorithm": "CRC32C", "Checksum": "1b2c3d4e" }, { "Encoded-Path": "626173652f35", "Size": 8192, "Last-Modified": "2024-05-01 12:00:00 GMT" }' \
        '"WAL-Ranges": [ { "Timeline": 1, "Start-LSN": "0/2000028", "End-LSN": "0/2000120" }' \
        >"corpus/postgres_manifest/version_$version"
done
# What each piece is named and how long it is stands before it: see the target.
for version in 9.6 15 18; do
    folder=../fixtures/postgres/$version
    { printf '\100'; cat "$folder/heap.3.page"; printf '\102'; cat "$folder/control.on.shutdown"; } \
        >"corpus/postgres_archive/$version"
    tar --format=ustar -cf - -C "$folder" filenode.global.map | { printf '\0'; cat; } >"corpus/tar/$version"
done
# Pages of indexes, read as what they are: the bit keeps the page as it is.
for version in 9.6 13 18; do
    for page in btree_leaf.2:'\10' hash.2:'\11' gist.1:'\12' gin.1:'\13' spgist.1:'\14' vm.0:'\10'; do
        file=../fixtures/postgres/$version/${page%%:*}.page
        seed postgres_index "${page#*:}" "$file"
    done
done
# One fork with a limit and one chunk of two blocks; the target adds the rest.
mkdir -p corpus/postgres_summary
printf '\0\177\6\0\0\5\0\0\0\0\100\0\0\0\0\0\0\7\0\0\0\1\0\0\0\2\0\5\0\6\0' >corpus/postgres_summary/one_fork
# Two pages, by their LSNs and hashes, as one file whose place the target adds.
mkdir -p corpus/seal
printf '\0\0\0\4\200\1\2\3\1\2\3\4\5\6\7\10\0\0\0\0\0\0\0\0' >corpus/seal/two_pages
# An index of one file, "a", of no pages, and one that is not compressed.
printf '\4\0\47\1\0a\0\40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\20\0\0\0\0\0\0\0\0\0\0\0' >corpus/seal/index
printf '\14\0\3abc' >corpus/seal/not_compressed
# A table of one file, "a", of 4 bytes; an index of one block, stored as it is.
mkdir -p corpus/pack
{ printf '\0\104\0\1\1\0a'; head -c 24 /dev/zero; printf '\4\0\0\0\0\0\0\0'; head -c 32 /dev/zero
  printf '\24\0\44\0\0\0\0\0\0\0\4\0\0\1\0\0\0\0\0\0\0\0SPANabcd'; } >corpus/pack/one_file
# The same as a delta, whose one block lies in its base (and is not that of it).
{ printf '\4\104\0\1\1\0a'; head -c 24 /dev/zero; printf '\4\0\0\0\0\0\0\0'; head -c 32 /dev/zero
  printf '\24\0\104\0\0\0\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\0SPAN'; } >corpus/pack/delta
# A real one, whole and cut.
{ printf '\1'; cat ../fixtures/pack/1/shop.pwk; } >corpus/pack/real
{ printf '\11'; cat ../fixtures/pack/1/shop.pwk; } >corpus/pack/cut
# SQL Server backups are not ours to keep: where they lie beside the project, the
# beginning and the end of each, where all headers but the data's are.
backups=${PAGEWARDEN_FIXTURES:-../../shared/fixtures}/sqlserver
mkdir -p corpus/mtf corpus/mssqlbak corpus/xpress
for file in "$backups"/*.bak; do
    name=$(basename "$file")
    if [ "$(head -c 8 "$file" | tr -d '\0')" = MSSQLBAK ]; then
        { printf '\0'; head -c 16000 "$file"; } >"corpus/mssqlbak/begin_$name"
        # The header of the file, and the index with what follows it.
        { printf '\0'; head -c 480 "$file"; tail -c 15900 "$file"; } >"corpus/mssqlbak/end_$name"
        # A chunk's contents, for 4 KiB.
        { printf '\0\0\020'; head -c 862 "$file" | tail -c 354; } >"corpus/xpress/chunk_$name"
    else
        { printf '\1'; head -c 9000 "$file"; } >"corpus/mtf/begin_$name"
        { printf '\0'; tail -c 7300 "$file"; } >"corpus/mtf/end_$name"
    fi
done
# A whole one but for its extents, of which the target gives it three: the eight
# bytes are the length.
file=$backups/northwind-stripe2of2-torn-2008r2.bak
if [ -f "$file" ]; then
    { printf '\2'; head -c 7664 "$file"; printf '\2\0\3\0\0\0\0\0'
      head -c 7678 "$file" | tail -c 6; tail -c 21504 "$file"; } >corpus/mtf/three_extents
fi
# Aria: a transactional table's data pages of 8 KiB from page 1 on; its index.
mkdir -p corpus/aria_page corpus/xbstream corpus/innodb_redo corpus/innodb_doublewrite
for page in data:'\2' index:'\6'; do
    { printf "${page#*:}\3\1"; cat "../fixtures/aria/10.11/${page%%:*}.1.page"; } >"corpus/aria_page/${page%%:*}"
done
# One piece of a table, its end, a label.
printf '\1\0\0\20\0abcdefghijklmnop\4\0\0\0\0\10\32\0backup_type = incremental\n' >corpus/xbstream/two_files
# A block that is the log's last one, behind a header and a checkpoint.
{ printf '\1\3\0\0\0\6\0\0\0\0\0\0\0\0\0\0\20\0MySQL 9.7.4'; head -c 485 /dev/zero
  printf '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\20\24'; head -c 496 /dev/zero
  head -c 1024 /dev/zero
  printf '\0\0\0\11\0\24\0\0\0\0\0\1'; head -c 500 /dev/zero; } >corpus/innodb_redo/mysql
# "Phys": a header, a checkpoint at LSN 12288, a record that confirms it.
{ printf '\0\3Phys\0\0\0\0\0\0\0\0\0\0\60\0MariaDB 10.11'; head -c 483 /dev/zero
  printf '\0\0\0\0\0\0\60\0\0\0\0\0\0\0\60\0'; head -c 48 /dev/zero
  printf '\372\0\0\0\0\0\0\0\0\60\0\1\0\0\0\0'; head -c 400 /dev/zero; } >corpus/innodb_redo/mariadb
# A list of two pages, and the pages.
{ printf '\3XTRA\0\0\0\1\0\0\0\7'; head -c 1012 /dev/zero | tr '\0' '\377'; head -c 2048 /dev/zero; } >corpus/innodb_doublewrite/delta
# Tablespaces lie beside the project, where they are at hand. The first bytes: page 0 as it is;
# pages of 16K in the old layout, of 8K in zip files, of 16K in full_crc32.
innodb=${PAGEWARDEN_FIXTURES:-../../shared/fixtures}/innodb
mkdir -p corpus/innodb_target corpus/innodb_page corpus/innodb_keyring
for file in "$innodb"/*/*/*.ibd "$innodb"/public/*; do
    name=${file#"$innodb"/}
    { printf '\4'; head -c 131071 "$file"; } >"corpus/innodb_target/${name//\//_}"
done
for page in pcz:'\14' pcl:'\14' enc:'\14' red:'\14'; do
    for folder in mariadb-10.11/crc32-16k mysql-9.7/crc32-16k; do
        file=$innodb/$folder/${page%%:*}.ibd
        [ -e "$file" ] || continue
        { printf "${page#*:}"'\1'; dd if="$file" bs=16384 skip=5 count=1 status=none; } >"corpus/innodb_page/${folder//\//_}_${page%%:*}"
    done
done
printf '\6{"elements":[{"data_id":"k","data":"00"}]}lCC' >corpus/innodb_keyring/json
printf '\121;000102030405060708090a0b0c0d0e0f' >corpus/innodb_keyring/lines
# The boot page of each data file as page 9, and behind what the target puts itself.
mkdir -p corpus/sqlserver_page corpus/sqlserver_pfs
for file in "$backups"/*.mdf; do
    name=$(basename "$file")
    { printf '\1\11\3\2'; head -c 81920 "$file" | tail -c 8192; } >"corpus/sqlserver_page/boot_$name"
    { printf '\1\1\140\0'; head -c 81920 "$file" | tail -c 8096; } >"corpus/sqlserver_pfs/boot_$name"
    { printf '\0\1\140\0'; head -c 8192 "$file" | tail -c 8096; } >"corpus/sqlserver_pfs/file_$name"
done
# URLs and files with passwords; values in words; a stream of two rows of one int2 (column 1).
mkdir -p corpus/db_location corpus/db_values corpus/db_rows corpus/db_answer
printf '\0postgresql://ann:s%%40cret@[::1]:6543/shop?sslmode=require&schema=s' >corpus/db_location/url
printf '\1ann\0\0db.example:5432/shop?socket=/run' >corpus/db_location/password
printf '\3[client]\nuser = "ann"\npassword=a\\:b:*:5432\n' >corpus/db_location/file
printf '\6{"a":[1,0.5e-3,null],"\\u00e9":{"c":"x\\n","d":true}}' >corpus/db_values/json
printf '\4-0043-03-15T01:02:03.5+02:00' >corpus/db_values/moment
printf '\0-0012.50e-7' >corpus/db_values/number
printf '\1 0-1-5,\n1-2-3' >corpus/db_values/gtid
printf '\0\3\4\0\1\0\0\0\2\0\7\0\1\377\377\377\377\377\377' >corpus/db_rows/copy
printf '\0\25\2\0\1\0\0\0\16\0\3\0\1\0\0\0\3\0\1\11\51\32\174\377\377' >corpus/db_rows/numeric
printf '\1\13\0\6\1\377\0\0\0\1\2\3\4\5\6\7\10\11' >corpus/db_rows/span
printf '\2\4\2\0\0\1\2\0\5\0\0\2\376\0\0\2\0\3\0\0\3\0\0\7\5\0\0\4\376\0\0\2\0' >corpus/db_answer/rows
# A table, a chunk of it that is not equal, what came of that, and the last chunk; buckets.
mkdir -p corpus/db_state
{ printf '\0{"table":{"number":0,"target":"t","schema":null,"name":"a","fingerprint":"f"}}\n'
  printf '{"mode":[0,"stream","because"]}\n'
  printf '{"chunk":[0,{"number":0,"after":null,"upto":["n:5"],"rows_source":5,"rows_target":5,"sum_source":"a","sum_target":"b","mode":"stream","bytes":10,"unequal":[[null,["n:5"]]]}]}\n'
  printf '{"settled":[0,[0,0],{"changed":1,"only_source":0,"only_target":0,"differences":[],"places":[0]}]}\n'
  printf '{"chunk":[0,{"number":1,"after":["n:5"],"upto":null,"rows_source":5,"rows_target":5,"sum_source":"a","sum_target":"a","mode":"stream","bytes":10,"unequal":[]}]}'
} >corpus/db_state/chunks
