//! The system calls that a network thread may make, as a filter of the kernel's (seccomp). Any
//! other one ends the process with SIGSYS.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

const RWF_NOWAIT: u64 = 0x8;

/// Sleeping, sockets, memory, clocks, locks, and the end: none of them uses a disk.
const FREE: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_ctl,
    libc::SYS_timerfd_settime,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_getrandom,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // For sockets. That files are closed by others is the task of `disk::leave_files_open`, with
    // its own test.
    libc::SYS_close,
];

fn only_with(arg: u8, op: SeccompCmpOp, value: libc::c_int) -> Vec<SeccompRule> {
    let (len, value) = (SeccompCmpArgLen::Dword, value as u32);
    let condition = SeccompCondition::new(arg, len, op, u64::from(value)).unwrap();
    vec![SeccompRule::new(vec![condition]).unwrap()]
}

fn has_flag(arg: u8, flag: u64) -> Vec<SeccompRule> {
    let op = SeccompCmpOp::MaskedEq(flag);
    let condition = SeccompCondition::new(arg, SeccompCmpArgLen::Dword, op, flag).unwrap();
    vec![SeccompRule::new(vec![condition]).unwrap()]
}

pub fn program() -> BpfProgram {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FREE.iter().map(|call| (*call, Vec::new())).collect();
    // To an eventfd: eight bytes.
    rules.insert(libc::SYS_write, only_with(2, SeccompCmpOp::Eq, 8));
    // Of files, what is in memory.
    rules.insert(libc::SYS_preadv2, has_flag(5, RWF_NOWAIT));
    // Sends what the kernel kept back of a reply.
    rules.insert(
        libc::SYS_setsockopt,
        only_with(2, SeccompCmpOp::Eq, libc::TCP_NODELAY),
    );
    // Memory of its own, never a file's.
    rules.insert(libc::SYS_mmap, has_flag(3, libc::MAP_ANONYMOUS as u64));
    // Debug builds of the standard library check that a descriptor is open before they close it.
    rules.insert(
        libc::SYS_fcntl,
        only_with(1, SeccompCmpOp::Eq, libc::F_GETFD),
    );
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let (refuse, allow) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let filter = SeccompFilter::new(rules, refuse, allow, architecture).unwrap();
    filter.try_into().unwrap()
}

/// Holds the calling thread to the list from now on.
pub fn apply(program: &BpfProgram) {
    apply_filter(program).unwrap();
}
