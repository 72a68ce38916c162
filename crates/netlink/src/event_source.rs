//! What listeners and monitors have in common.

use std::os::fd::AsFd;

use crate::Error;

/// A socket that receives notifications, and whose descriptor is readable once there are some.
///
/// You need the trait to write an event loop for any of them: [`Listener`](crate::Listener),
/// `Monitor` of vipline-nftables and `Events` of vipline-conntrack. With the feature `tokio`,
/// `tokio::EventStream` is such a loop.
///
/// ```no_run
/// use rustix::event::{PollFd, PollFlags, poll};
/// use vipline_netlink::EventSource;
///
/// /// Calls `each` for every event until it returns an error.
/// fn follow<S: EventSource>(
///     source: &mut S,
///     mut each: impl FnMut(Result<S::Event, S::Error>) -> Result<(), S::Error>,
/// ) -> Result<(), Box<dyn std::error::Error>>
/// where
///     S::Error: std::error::Error + 'static,
/// {
///     loop {
///         poll(&mut [PollFd::new(source, PollFlags::IN)], None)?;
///         let mut result = Ok(());
///         source.read_events(64, |event| {
///             if result.is_ok() {
///                 result = each(event);
///             }
///         })?;
///         result?;
///     }
/// }
/// ```
pub trait EventSource: AsFd {
    /// What one or several notifications report.
    type Event;

    /// Error of the socket, of a notification that is malformed, and of
    /// [lost notifications](Error::NotificationsLost).
    type Error: From<Error>;

    /// Reads at most `datagrams` datagrams, and calls `each` for every event in order. Does not
    /// block.
    ///
    /// Returns whether everything was read. An event loop with edge-triggered readiness, such
    /// as that of tokio, has to call again otherwise, because the kernel does not report the
    /// rest.
    ///
    /// `each` gets an error in place of notifications that were lost or are malformed. The
    /// source is usable afterwards.
    ///
    /// # Errors
    ///
    /// Reading failed. The source is unusable then.
    fn read_events(
        &mut self,
        datagrams: usize,
        each: impl FnMut(Result<Self::Event, Self::Error>),
    ) -> Result<bool, Self::Error>;
}
