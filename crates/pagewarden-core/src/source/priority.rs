//! Lets a thread stand behind all others, for processors and for disks.
//!
//! Linux runs threads of `SCHED_IDLE` when no other wants the processor, and some of its disk
//! schedulers (BFQ) serve requests of the idle class when no other waits. Any user may ask for both
//! for a thread of its own. The scheduler `none`, which is usual for NVMe, has no classes.

/// For the thread that calls. Where the system refuses, the thread stays as it is: it is a courtesy.
pub fn stand_back() {
    #[cfg(target_os = "linux")]
    system::stand_back();
}

#[cfg(target_os = "linux")]
mod system {
    /// `IOPRIO_WHO_PROCESS` of linux/ioprio.h, which with 0 means the calling thread.
    const WHO_THREAD: libc::c_int = 1;
    /// `IOPRIO_CLASS_IDLE`, shifted by `IOPRIO_CLASS_SHIFT`.
    const CLASS_IDLE: libc::c_int = 3 << 13;

    pub(super) fn stand_back() {
        // Priorities mean nothing in this class, and must be 0.
        let param: libc::c_int = 0;
        // The functions of the C library: musl has none that works.
        // SAFETY: the pointer is to a live `struct sched_param`, which is one int, and is only read;
        // 0 is the calling thread.
        unsafe {
            libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const param);
        }
        // SAFETY: three numbers, and nothing is written to memory.
        unsafe {
            libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, 0, CLASS_IDLE);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn thread_is_idle_and_others_are_not() {
            let class_of_this = || {
                // SAFETY: 0 is the calling thread, and nothing is written to memory.
                unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) }
            };
            let before = class_of_this();
            let idle = std::thread::spawn(move || {
                stand_back();
                class_of_this()
            });
            let idle = idle.join().unwrap();
            if idle == before {
                eprintln!("SKIPPED: this system lets no thread be idle");
                return;
            }
            assert_eq!(idle, i64::from(libc::SCHED_IDLE));
            assert_eq!(class_of_this(), before);
        }
    }
}
