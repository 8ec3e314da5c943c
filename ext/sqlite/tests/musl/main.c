/* A program that is linked with SQLite and loads the extension: main EXTENSION DATABASE. Makes the VFS the
 * default one, fills a database, flips a byte of it and reads it again. Exits with 0 if the database was
 * protected, sound, and then seen to be damaged. scripts/dist-sqlite-test.sh builds it with musl. */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static int first(sqlite3 *db, const char *sql, char *answer, int bytes) {
  sqlite3_stmt *statement;
  int result = sqlite3_prepare_v2(db, sql, -1, &statement, 0);
  answer[0] = 0;
  if (result == SQLITE_OK) {
    result = sqlite3_step(statement);
    if (result == SQLITE_ROW) {
      snprintf(answer, bytes, "%s", (const char *)sqlite3_column_text(statement, 0));
    }
    sqlite3_finalize(statement);
  }
  return result;
}

int main(int count, char **words) {
  sqlite3 *loader, *db;
  char *error = 0, answer[100];
  FILE *file;
  if (count != 3) return 2;
  sqlite3_open(":memory:", &loader);
  sqlite3_enable_load_extension(loader, 1);
  if (sqlite3_load_extension(loader, words[1], "sqlite3_pagewarden_default_init", &error)) {
    fprintf(stderr, "not loaded: %s\n", error);
    return 1;
  }
  sqlite3_open(words[2], &db);
  if (sqlite3_exec(db,
                   "PRAGMA journal_mode=WAL; CREATE TABLE t(a, b);"
                   "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<9000)"
                   "INSERT INTO t SELECT v, hex(randomblob(100)) FROM n;",
                   0, 0, &error)) {
    fprintf(stderr, "not filled: %s\n", error);
    return 1;
  }
  first(db, "PRAGMA page_verify", answer, sizeof answer);
  printf("SQLite %s: %s", sqlite3_libversion(), answer);
  if (strcmp(answer, "CHECKSUM")) return 1;
  first(db, "PRAGMA integrity_check", answer, sizeof answer);
  printf(", %s", answer);
  if (strcmp(answer, "ok") || sqlite3_close(db)) return 1;

  file = fopen(words[2], "r+b");
  if (!file || fseek(file, 40 * 4096 + 2000, SEEK_SET)) return 1;
  int byte = fgetc(file);
  fseek(file, 40 * 4096 + 2000, SEEK_SET);
  fputc(byte ^ 4, file);
  fclose(file);
  sqlite3_open(words[2], &db);
  if (first(db, "SELECT sum(length(b)) FROM t", answer, sizeof answer) != SQLITE_IOERR) return 1;
  first(db, "SELECT page_id || ' ' || kind FROM pagewarden_suspect_pages", answer, sizeof answer);
  printf("; after a flipped bit: page %s\n", answer);
  sqlite3_close(db);
  return strcmp(answer, "41 bit_flip") != 0;
}
