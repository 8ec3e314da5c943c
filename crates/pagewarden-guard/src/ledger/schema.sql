CREATE TABLE target (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    path TEXT NOT NULL,
    every_seconds INTEGER NOT NULL,
    engine TEXT NOT NULL DEFAULT '',
    format TEXT NOT NULL DEFAULT '',
    added_at INTEGER NOT NULL,
    -- The pass that is under way, or the last one.
    pass INTEGER NOT NULL DEFAULT 0,
    -- Runs are counted, so that no order depends on a clock.
    run INTEGER NOT NULL DEFAULT 0,
    -- Of an archive: what its files looked like.
    signature TEXT,
    attempt_at INTEGER,
    -- Why the last attempt came to nothing.
    error TEXT
);
CREATE TABLE pass (
    target INTEGER NOT NULL REFERENCES target,
    number INTEGER NOT NULL,
    begun_at INTEGER NOT NULL,
    ended_at INTEGER,
    -- All that it covered was everything there was.
    is_complete INTEGER NOT NULL DEFAULT 0,
    -- It read everything in one run, so that evidence between files was asked for.
    is_whole INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    ok INTEGER NOT NULL DEFAULT 0,
    empty INTEGER NOT NULL DEFAULT 0,
    unprotected INTEGER NOT NULL DEFAULT 0,
    unverifiable INTEGER NOT NULL DEFAULT 0,
    undecided INTEGER NOT NULL DEFAULT 0,
    suspect INTEGER NOT NULL DEFAULT 0,
    damaged INTEGER NOT NULL DEFAULT 0,
    untested_files INTEGER NOT NULL DEFAULT 0,
    is_off INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (target, number)
) WITHOUT ROWID;
CREATE TABLE file (
    id INTEGER PRIMARY KEY,
    target INTEGER NOT NULL REFERENCES target,
    name TEXT NOT NULL,
    inode INTEGER NOT NULL,
    -- When it was made and when it was last changed, in nanoseconds; 0 where that is unknown.
    born INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    size INTEGER NOT NULL,
    page_size INTEGER NOT NULL,
    -- Where its first page begins, and where its last one ends.
    first INTEGER NOT NULL,
    end INTEGER NOT NULL,
    -- The run that listed it.
    listed INTEGER NOT NULL,
    -- The last pass in which something of it could not be read.
    tried INTEGER NOT NULL DEFAULT 0,
    -- Since when it has pages that no claim covers.
    hole_since INTEGER,
    UNIQUE (target, name)
);
CREATE TABLE claim (
    file INTEGER NOT NULL REFERENCES file,
    begin INTEGER NOT NULL,
    end INTEGER NOT NULL,
    pass INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (file, begin)
) WITHOUT ROWID;
CREATE TABLE finding (
    id INTEGER PRIMARY KEY,
    target INTEGER NOT NULL REFERENCES target,
    -- Of a repository: which set.
    member TEXT NOT NULL,
    file TEXT NOT NULL,
    page INTEGER,
    offset INTEGER,
    kind TEXT NOT NULL,
    severity TEXT NOT NULL,
    -- By the page's own test, which one reading of the page can undo.
    is_own INTEGER NOT NULL,
    body TEXT NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    last_run INTEGER NOT NULL,
    closed_at INTEGER,
    closed_by TEXT
);
CREATE INDEX finding_open ON finding (target, file, offset, page) WHERE closed_at IS NULL;
CREATE TABLE unread (
    target INTEGER NOT NULL REFERENCES target,
    -- The run that saw it.
    run INTEGER NOT NULL,
    member TEXT NOT NULL,
    file TEXT NOT NULL,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    error TEXT NOT NULL
);
CREATE INDEX unread_target ON unread (target, file);
CREATE TABLE receipt (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    body TEXT NOT NULL,
    hash TEXT NOT NULL
);
