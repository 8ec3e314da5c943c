//! Room for open files, made while that is cheap.

/// `protect` has some 400 files open at a time. As many are allowed almost everywhere.
const ROOM: i32 = 1023;

/// Makes room for many open files. To be called before the first thread is started.
///
/// Linux doubles a process's table of open files whenever it is full. If the process has
/// threads by then it waits until no processor looks at the old table: 5 to 12 ms each
/// time, and who opens a file meanwhile waits too. A descriptor with a high number has the
/// table grow at once. It is a wish; without it everything works the same.
pub(crate) fn make_room() {
    pagewarden::system::make_room(ROOM);
}
