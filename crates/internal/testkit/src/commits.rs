//! When the rules of a namespace change.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::netns::Netns;

/// A listener to the nf_tables commits of a namespace.
#[derive(Debug)]
pub struct Commits {
    socket: OwnedFd,
}

impl Commits {
    /// Listens from now on.
    ///
    /// # Errors
    ///
    /// The kernel has no nf_tables, or what else it says.
    pub fn listen(netns: &Netns) -> io::Result<Self> {
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

    /// Waits for a commit, and then for more, until none came for `quiet`.
    ///
    /// Returns when the last one was seen; [`None`] when there was none before
    /// the deadline.
    ///
    /// # Errors
    ///
    /// What the kernel says to reading the socket.
    pub fn last(&self, deadline: Instant, quiet: Duration) -> io::Result<Option<Instant>> {
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
    fn a_commit_is_noticed_and_nothing_is_no_commit() {
        let netns = Netns::new().unwrap();
        let commits = Commits::listen(&netns).unwrap();
        let quiet = Duration::from_millis(50);
        let soon = || Instant::now() + quiet;
        assert_eq!(commits.last(soon(), quiet).unwrap(), None);
        let before = Instant::now();
        let status = netns.run(|| {
            Command::new("nft")
                .args(["add", "table", "ip", "t"])
                .status()
        });
        assert!(status.unwrap().success());
        let after = Instant::now();
        let deadline = after + Duration::from_secs(5);
        let seen = commits.last(deadline, quiet).unwrap().unwrap();
        assert!(before < seen && seen < after + Duration::from_secs(1));
    }
}
