-- Of a set of a repository: the verdict on it when it was last read.
ALTER TABLE file ADD COLUMN verdict TEXT;
