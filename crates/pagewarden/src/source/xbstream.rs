//! The stream format of xtrabackup and mariabackup.
