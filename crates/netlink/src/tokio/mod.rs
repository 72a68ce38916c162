//! Notifications and requests in programs with tokio (feature `tokio`).
//!
//! - [`EventStream`] waits for the notifications of a [`Listener`](crate::Listener), a
//!   `Monitor` of vipline-nftables, `Events` of vipline-conntrack, or an
//!   [`EventSource`](crate::EventSource) of your own.
//! - [`AsyncClient`] runs the calls of a blocking client beside the tasks of the runtime: a
//!   [`Socket`](crate::Socket), or the `Client` of any crate.
//!
//! ```no_run
//! use vipline_netlink::tokio::{AsyncClient, EventStream};
//! use vipline_netlink::{Dump, Error, Listener, Protocol, Socket};
//!
//! const RTM_GETLINK: u16 = 18;
//! const RTNLGRP_LINK: u32 = 1;
//!
//! async fn follow_links() -> Result<(), Error> {
//!     let mut listener = Listener::open(Protocol::ROUTE)?;
//!     listener.join(RTNLGRP_LINK)?;
//!     let mut events = EventStream::new(listener)?;
//!     let socket = AsyncClient::new(Socket::open(Protocol::ROUTE)?);
//!     loop {
//!         // The dump is after the groups were joined, so that no change is missed.
//!         let links = socket
//!             .call(|socket| {
//!                 socket.dump(RTM_GETLINK, &[0; 16], 3, || 0, |links, _| {
//!                     *links += 1;
//!                     Ok::<(), Error>(())
//!                 })
//!             })
//!             .await?;
//!         println!("{:?} links", links.complete());
//!         loop {
//!             match events.next().await {
//!                 Ok(event) => println!("a link changed: {event:?}"),
//!                 Err(Error::NotificationsLost) => break,
//!                 Err(error) => return Err(error),
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! Open sockets and clients before you pass them on: they belong to the network namespace of
//! the thread that opens them, and tasks change their threads.
//! [`NetworkNamespace::run`](crate::NetworkNamespace::run) opens them in another one.

mod client;

mod socket;

pub use client::AsyncClient;
pub use socket::EventStream;
