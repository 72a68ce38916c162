//! Times of nf_tables commits in a namespace.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::netns::Netns;

/// A monitor of nf_tables commits in a namespace.
#[derive(Debug)]
pub struct CommitMonitor {
    socket: OwnedFd,
}

impl CommitMonitor {
    /// Opens a monitor.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created or bound.
    pub fn open(netns: &Netns) -> io::Result<Self> {
        /// `NFNLGRP_NFTABLES` of `linux/netfilter/nfnetlink.h`, as a bit.
        const GROUP: u32 = 1 << (7 - 1);
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        netns.run(|| {
            let socket = socket_with(family, kind, flags, Some(NETFILTER))?;
            bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
            Ok(Self { socket })
        })
    }

    /// Waits for commits until none has arrived for `quiet`, or until the deadline.
    ///
    /// Returns the time of the last commit, or [`None`] if no commit arrived.
    ///
    /// # Errors
    ///
    /// If the socket cannot be read.
    pub fn last_commit(&self, deadline: Instant, quiet: Duration) -> io::Result<Option<Instant>> {
        let mut last = None;
        loop {
            let until = last.map_or(deadline, |last| deadline.min(last + quiet));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(last);
            }
            let timeout = Timespec::try_from(left).expect("a deadline is near");
            poll(
                &mut [PollFd::new(&self.socket, PollFlags::IN)],
                Some(&timeout),
            )?;
            let mut buffer = [0; 16384];
            match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok(_) | Err(Errno::NOBUFS) => last = Some(Instant::now()),
                Err(Errno::AGAIN | Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_time_of_a_commit_is_reported() {
        let netns = Netns::new().unwrap();
        let commits = CommitMonitor::open(&netns).unwrap();
        let quiet = Duration::from_millis(50);
        let soon = || Instant::now() + quiet;
        assert_eq!(commits.last_commit(soon(), quiet).unwrap(), None);
        let before = Instant::now();
        let status = netns.run(|| {
            Command::new("nft")
                .args(["add", "table", "ip", "t"])
                .status()
        });
        assert!(status.unwrap().success());
        let after = Instant::now();
        let deadline = after + Duration::from_secs(5);
        let seen = commits.last_commit(deadline, quiet).unwrap().unwrap();
        assert!(before < seen && seen < after + Duration::from_secs(1));
    }
}
