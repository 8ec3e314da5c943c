//! What differs between systems, by the same names on each: positioned reads and writes, what a
//! file is beside its bytes, names as bytes, locks, folders that are held.
//!
//! | | Unix | Windows |
//! | --- | --- | --- |
//! | positioned reads | `pread` | `ReadFile` with an offset |
//! | identity of a file | device and inode | number of the volume and of the file on it |
//! | changes by a folder's descriptor | yes | no: refused, and so is every writer that needs them |
//!
//! On Unix all of it is what the standard library and `rustix` have, and costs nothing more. Windows
//! has what reading needs; what it lacks says that it is not supported, so that no writer half works.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn file_has_one_identity_by_whatever_way_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        fs::write(&one, b"0123456789").unwrap();
        fs::write(&other, b"0123456789").unwrap();
        let of = |path: &std::path::Path| identity(&fs::metadata(path).unwrap(), path).unwrap();
        assert_eq!(of(&one), of(&folder.path().join("./one")));
        assert_ne!(of(&one), of(&other));
        assert_eq!(of(&one), identity_of_open(&fs::File::open(&one).unwrap()).unwrap());
        assert_ne!(of(folder.path()), of(&one));
    }

    #[test]
    fn positioned_reads_end_where_the_file_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"0123456789").unwrap();
        let file = fs::File::open(&path).unwrap();
        let mut bytes = [0; 4];
        assert_eq!((file.read_at(&mut bytes, 8).unwrap(), &bytes[..2]), (2, &b"89"[..]));
        assert_eq!(file.read_at(&mut bytes, 10).unwrap(), 0);
        assert_eq!(file.read_at(&mut bytes, 1 << 40).unwrap(), 0);
        file.read_exact_at(&mut bytes, 3).unwrap();
        assert_eq!(&bytes, b"3456");
        assert!(file.read_exact_at(&mut bytes, 7).is_err());
    }
}
