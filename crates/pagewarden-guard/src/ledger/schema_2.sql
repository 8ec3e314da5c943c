-- What was reported of a finding: nothing yet, its severity, or 'gone'.
ALTER TABLE finding ADD COLUMN told TEXT;
UPDATE finding SET told = 'gone' WHERE closed_at IS NOT NULL;
CREATE INDEX finding_untold ON finding (target)
    WHERE told IS NULL OR (closed_at IS NOT NULL AND told <> 'gone');
-- States that were reported and have not ended: 'overdue', 'unreadable'.
CREATE TABLE told (
    target INTEGER NOT NULL REFERENCES target,
    what TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (target, what)
) WITHOUT ROWID;
-- Changes that wait to be put into a message.
CREATE TABLE event (
    way TEXT NOT NULL,
    target INTEGER NOT NULL REFERENCES target,
    what TEXT NOT NULL,
    at INTEGER NOT NULL,
    count INTEGER NOT NULL,
    -- The first of them, as JSON.
    samples TEXT NOT NULL,
    PRIMARY KEY (way, target, what)
) WITHOUT ROWID;
CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    way TEXT NOT NULL,
    made_at INTEGER NOT NULL,
    body TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER NOT NULL,
    -- When it was taken, or given up with an error.
    done_at INTEGER,
    error TEXT
);
CREATE INDEX message_open ON message (way) WHERE done_at IS NULL;
CREATE TABLE memory (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
-- Messages of two ledgers are never of one number.
INSERT INTO memory (key, value) VALUES ('ledger', lower(hex(randomblob(16))));
