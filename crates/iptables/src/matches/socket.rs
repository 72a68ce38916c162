//! Matches of sockets and their owners, and of routes back: `-m socket`, `-m cgroup`,
//! `-m osf` and `-m rpfilter`.

use std::borrow::Cow;

use crate::field::{Text, extension};
use crate::negatable::Negatable;

extension! {
    /// Matches packets that have a socket on this host: `-m socket --transparent`.
    pub struct Socket = "-m socket" {
        /// Whether the socket is transparent.
        transparent: bool = "--transparent",
        /// Whether sockets that listen on all addresses match, too.
        nowildcard: bool = "--nowildcard",
        /// Whether the packet gets the mark of the socket.
        restore_skmark: bool = "--restore-skmark",
    }
    complete |_| true;
}

extension! {
    /// Matches the control group of the sending socket: `-m cgroup --path "a/b"`.
    ///
    /// iptables requires exactly one option.
    pub struct Cgroup<'a> = "-m cgroup" {
        /// Path in the hierarchy of version 2.
        path: Option<Negatable<Text<'a>>> = "--path",
        /// Class ID of version 1.
        class_id: Option<Negatable<u32>> = "--cgroup",
    }
    complete |it| it.path.is_some() != it.class_id.is_some();
}

extension! {
    /// Matches the operating system of the sender: `-p tcp -m osf --genre Linux`.
    pub struct Osf<'a> = "-m osf" {
        /// Name of the operating system.
        genre: Option<Negatable<Cow<'a, str>>> = "--genre",
        /// Comparison of the time to live, 0 to 2.
        ttl: Option<u8> = "--ttl",
        /// Log level, 0 to 2.
        log: Option<u8> = "--log",
    }
    complete |it| it.genre.is_some() && it.ttl.max(it.log).is_none_or(|it| it < 3);
}

extension! {
    /// Matches packets whose reply leaves through their input interface: `-m rpfilter`.
    pub struct Rpfilter = "-m rpfilter" {
        /// Whether any interface with a route to the source is enough.
        loose: bool = "--loose",
        /// Whether the packet mark selects the route.
        validmark: bool = "--validmark",
        /// Whether packets from this host match.
        accept_local: bool = "--accept-local",
        /// Whether packets match that fail the test.
        invert: bool = "--invert",
    }
    complete |_| true;
}
