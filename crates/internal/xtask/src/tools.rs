//! Finds and installs programs that tasks need.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use rustix::process::geteuid;

use crate::process::execute;

/// A program, or the path of a file, and its Debian package.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    program: &'static str,
    package: &'static str,
}

/// Programs that kernel tests compare results with, or change the kernel with.
pub(crate) const KERNEL_TOOLS: &[Tool] = &[
    Tool::new("nft", "nftables"),
    Tool::new("ip", "iproute2"),
    Tool::new("unshare", "util-linux"),
    Tool::new("setpriv", "util-linux"),
    Tool::new("iptables-save", "iptables"),
    Tool::new("nfacct", "nfacct"),
    Tool::new("ipset", "ipset"),
    Tool::new("conntrack", "conntrack"),
    Tool::new("strace", "strace"),
];

/// DNS programs that tests compare answers with.
pub(crate) const DNS_TOOLS: &[Tool] = &[
    Tool::new("dig", "bind9-dnsutils"),
    Tool::new("dnsmasq", "dnsmasq-base"),
    Tool::new("busybox", "busybox-static"),
];

/// Programs to build and boot guests, and programs that tests run in guests.
pub(crate) const VM_TOOLS: &[Tool] = &[
    Tool::new("qemu-system-x86_64", "qemu-system-x86"),
    Tool::new("busybox", "busybox-static"),
    Tool::new("depmod", "kmod"),
    Tool::new("xz", "xz-utils"),
    Tool::new("strip", "binutils"),
    Tool::new("ipvsadm", "ipvsadm"),
    Tool::new("sysctl", "procps"),
    Tool::new("/etc/protocols", "netbase"),
];

/// Libraries and tools for the comparison with libnftnl.
pub(crate) const NFTNL: &[Tool] = &[
    Tool::new("pkg-config", "pkg-config"),
    Tool::new("/usr/include/libmnl/libmnl.h", "libmnl-dev"),
    Tool::new("/usr/include/libnftnl/expr.h", "libnftnl-dev"),
];

/// Runtime of containers, and files that images contain.
pub(crate) const IMAGE_TOOLS: &[Tool] = &[
    Tool::new("crun", "crun"),
    Tool::new("unshare", "util-linux"),
    Tool::new("iptables-save", "iptables"),
    Tool::new("/etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
];

/// Program that sends DNS questions at a high rate.
pub(crate) const DNS_BENCH_TOOLS: &[Tool] = &[Tool::new("dnsperf", "dnsperf")];

/// Runs programs of Windows.
pub(crate) const WINE: &[Tool] = &[Tool::new("/usr/lib/wine/wine64", "wine64")];

/// Compiler for libFuzzer.
pub(crate) const FUZZ_TOOLS: &[Tool] = &[Tool::new("c++", "g++")];

impl Tool {
    const fn new(program: &'static str, package: &'static str) -> Self {
        Self { program, package }
    }
}

/// Installs the packages of missing tools.
///
/// # Errors
/// If tools are missing and the caller is not root or the system has no `apt-get`.
pub(crate) fn install(tools: &[Tool]) -> Result<()> {
    let missing: Vec<&Tool> = tools
        .iter()
        .filter(|tool| find(tool.program).is_none())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    let names: Vec<&str> = missing.iter().map(|tool| tool.program).collect();
    if find("apt-get").is_none() || !geteuid().is_root() {
        bail!(
            "missing: {}; install them first (on Debian: apt-get install {})",
            names.join(", "),
            packages.join(" ")
        );
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        execute(&mut command)
    };
    apt(&["update", "-q"])?;
    apt(&[
        &["install", "-q", "-y", "--no-install-recommends"],
        &*packages,
    ]
    .concat())?;
    match names.iter().find(|name| find(name).is_none()) {
        Some(name) => bail!(
            "{name} is still missing after apt-get install {}",
            packages.join(" ")
        ),
        None => Ok(()),
    }
}

/// Finds a program in the search path of root, or a file at an absolute path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let home = env::var_os("CARGO_HOME").map(|home| PathBuf::from(home).join("bin"));
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .chain(home)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_programs_and_files_are_found() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
        assert!(find("/etc/passwd").is_some());
        assert!(find("/etc/no-such-file").is_none());
        assert!(install(&[Tool::new("sh", "dash")]).is_ok());
    }
}
