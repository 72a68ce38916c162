//! What the sockets of all clients have in common.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use crate::message::Message;
use crate::{
    ClientError, Condition, Counters, Dump, Error, Protocol, Rejected, RejectedRequest, Socket,
};

/// A request that is about to be sent, with its words in errors.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Request<'a> {
    /// Type of the message.
    pub ty: u16,
    /// Flags besides those of every request.
    pub flags: u16,
    /// Operation, such as `list`.
    pub operation: &'static str,
    /// Object of the operation, such as `links`.
    pub object: &'a dyn fmt::Display,
}

impl<'a> Request<'a> {
    /// Creates a request without further flags.
    pub fn new(ty: u16, operation: &'static str, object: &'a dyn fmt::Display) -> Self {
        Self {
            ty,
            flags: 0,
            operation,
            object,
        }
    }

    /// Sets the flags.
    #[must_use]
    pub fn with_flags(self, flags: u16) -> Self {
        Self { flags, ..self }
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ty,
            flags,
            operation,
            object,
        } = self;
        f.debug_struct("Request")
            .field("ty", ty)
            .field("flags", flags)
            .field("operation", operation)
            .field("object", &object.to_string())
            .finish()
    }
}

/// A socket of a client, whose errors name the requests of type `R`.
///
/// You need it to write a client of another family of netlink with the same errors:
///
/// ```no_run
/// use std::fmt;
/// use vipline_netlink::{ClientError, Protocol, RejectedRequest, Request, Requester};
///
/// const RTM_GETLINK: u16 = 18;
///
/// #[derive(Debug)]
/// struct Change(String);
///
/// impl fmt::Display for Change {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str(&self.0)
///     }
/// }
///
/// impl RejectedRequest for Change {}
///
/// let mut requester = Requester::<Change>::open(Protocol::ROUTE)?;
/// let request = Request::new(RTM_GETLINK, "count", &"links");
/// let links = requester.list(
///     request,
///     3,
///     |payload| payload.extend_from_slice(&[0; 16]),
///     || 0,
///     |links, _| {
///         *links += 1;
///         Ok(())
///     },
/// )?;
/// println!("{links} links");
/// # Ok::<(), ClientError<Change>>(())
/// ```
pub struct Requester<R> {
    socket: Socket,
    payload: Vec<u8>,
    requests: PhantomData<fn() -> R>,
}

impl<R: RejectedRequest> Requester<R> {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`ClientError::Unsupported`] if the kernel lacks the protocol, and
    /// [`ClientError::Netlink`] if it lacks memory.
    pub fn open(protocol: Protocol) -> Result<Self, ClientError<R>> {
        Ok(Self {
            socket: Socket::open(protocol)?,
            payload: Vec::new(),
            requests: PhantomData,
        })
    }

    /// Returns the socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the socket, to exchange messages in other ways.
    pub fn socket_mut(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Sends a request, and calls `each` for every message of the reply.
    ///
    /// `encode` appends the payload.
    ///
    /// # Errors
    ///
    /// Those of [`Socket::request`], with operation and object
    /// ([`ClientError::from_request`]).
    pub fn request(
        &mut self,
        request: Request<'_>,
        encode: impl FnOnce(&mut Vec<u8>),
        each: impl FnMut(Message<'_>) -> Result<(), Error>,
    ) -> Result<(), ClientError<R>> {
        self.payload.clear();
        encode(&mut self.payload);
        self.socket
            .request(request.ty, request.flags, &self.payload, each)
            .map_err(|error| ClientError::from_request(request.operation, request.object, error))
    }

    /// Sends a request whose reply is one value, which `decode` returns.
    ///
    /// # Errors
    ///
    /// Those of [`request`](Self::request), and [`Error::Timeout`] if `decode` returned only
    /// `None`.
    pub fn get<T>(
        &mut self,
        request: Request<'_>,
        encode: impl FnOnce(&mut Vec<u8>),
        mut decode: impl FnMut(Message<'_>) -> Result<Option<T>, Error>,
    ) -> Result<T, ClientError<R>> {
        let mut found = None;
        self.request(request, encode, |message| {
            found = decode(message)?.or_else(|| found.take());
            Ok(())
        })?;
        found.ok_or(ClientError::Netlink(Error::Timeout))
    }

    /// Dumps objects like [`Socket::dump`].
    ///
    /// # Errors
    ///
    /// Those of [`Socket::dump`], with operation and object ([`ClientError::from_request`]).
    pub fn dump<T>(
        &mut self,
        request: Request<'_>,
        attempts: usize,
        encode: impl FnOnce(&mut Vec<u8>),
        start: impl FnMut() -> T,
        each: impl FnMut(&mut T, Message<'_>) -> Result<(), Error>,
    ) -> Result<Dump<T>, ClientError<R>> {
        self.payload.clear();
        encode(&mut self.payload);
        self.socket
            .dump(request.ty, &self.payload, attempts, start, each)
            .map_err(|error| ClientError::from_request(request.operation, request.object, error))
    }

    /// Dumps objects like [`dump`](Self::dump), but only completely.
    ///
    /// # Errors
    ///
    /// Those of [`dump`](Self::dump), and [`ClientError::Interrupted`] if changes interrupted
    /// every attempt.
    pub fn list<T>(
        &mut self,
        request: Request<'_>,
        attempts: usize,
        encode: impl FnOnce(&mut Vec<u8>),
        start: impl FnMut() -> T,
        each: impl FnMut(&mut T, Message<'_>) -> Result<(), Error>,
    ) -> Result<T, ClientError<R>> {
        let dump = self.dump(request, attempts, encode, start, each)?;
        dump.complete().ok_or_else(|| ClientError::Interrupted {
            operation: request.operation,
            object: request.object.to_string().into(),
            attempts,
        })
    }

    /// Sends independent requests like [`Socket::request_many`], and adds their results to
    /// `applied`.
    ///
    /// `name` converts a rejected request, or returns `None` if its rejection is no error,
    /// such as a request to delete what does not exist.
    ///
    /// # Errors
    ///
    /// - [`ClientError::Denied`] at the first request whose rejection has this
    ///   [condition](RejectedRequest::condition), because all others would have it, too.
    /// - Those of [`Socket::request_many`].
    pub fn request_each<T>(
        &mut self,
        requests: impl IntoIterator<Item = T>,
        encode: impl FnMut(&T, &mut Vec<u8>) -> (u16, u16),
        mut name: impl FnMut(Rejected<T>) -> Option<Rejected<R>>,
        applied: &mut Applied<R>,
    ) -> Result<(), ClientError<R>> {
        let rejected = &mut applied.rejected;
        let done = self.socket.request_many(requests, encode, |one| {
            let one = name(one);
            let is_denied = |one: &Rejected<R>| {
                R::condition(Some(&one.request), one.errno) == Some(Condition::Denied)
            };
            if one.as_ref().is_some_and(is_denied) {
                return Err(ClientError::Denied);
            }
            rejected.extend(one);
            Ok(())
        })?;
        applied.done += done;
        Ok(())
    }
}

impl<R> fmt::Debug for Requester<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requester")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

/// Results of independent requests.
#[derive(Clone, Debug)]
#[must_use = "requests may have been rejected"]
#[non_exhaustive]
pub struct Applied<R> {
    /// Number of applied requests.
    pub done: usize,
    /// Rejected requests in their order.
    pub rejected: Vec<Rejected<R>>,
}

impl<R> Applied<R> {
    /// Creates results without requests.
    pub fn new() -> Self {
        Self {
            done: 0,
            rejected: Vec::new(),
        }
    }

    /// Returns the number of applied requests.
    ///
    /// # Errors
    ///
    /// [`ClientError::Rejected`] if a request was rejected.
    pub fn into_result(self) -> Result<usize, ClientError<R>> {
        let Self { done, rejected } = self;
        match rejected.is_empty() {
            true => Ok(done),
            false => Err(ClientError::Rejected {
                rejected,
                more: Some(0),
                done,
            }),
        }
    }
}

impl<R> Default for Applied<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> AsFd for Requester<R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<R> AsRawFd for Requester<R> {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl<R: RejectedRequest> Requester<R> {
    /// Sets the reply timeout. Default: 10 s.
    ///
    /// # Errors
    ///
    /// [`ClientError::Netlink`] if the timeout is zero.
    pub fn set_timeout(&self, timeout: Duration) -> Result<(), ClientError<R>> {
        Ok(self.socket.set_timeout(timeout)?)
    }

    /// Returns the netlink port ID of the socket.
    pub fn port_id(&self) -> u32 {
        self.socket.port_id()
    }

    /// Returns the counters of the socket.
    pub fn counters(&self) -> Counters {
        self.socket.counters()
    }
}

/// Implements `AsFd` and `AsRawFd` by the descriptor of a field.
#[doc(hidden)]
#[macro_export]
macro_rules! impl_as_fd {
    ($type:ty, $field:ident) => {
        impl ::std::os::fd::AsFd for $type {
            fn as_fd(&self) -> ::std::os::fd::BorrowedFd<'_> {
                ::std::os::fd::AsFd::as_fd(&self.$field)
            }
        }

        impl ::std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> ::std::os::fd::RawFd {
                ::std::os::fd::AsRawFd::as_raw_fd(&self.$field)
            }
        }
    };
}

/// Checks at compile time that types have a descriptor for event loops, and can be moved to
/// another thread, as runtimes of async programs do.
#[doc(hidden)]
#[macro_export]
macro_rules! assert_descriptors {
    ($($type:ty),+) => {
        const _: () = {
            const fn check<T: ::std::os::fd::AsFd + ::std::os::fd::AsRawFd + Send + 'static>() {}
            $(check::<$type>();)+
        };
    };
}

#[cfg(test)]
crate::assert_descriptors!(crate::Listener, Requester<()>, Socket);

/// Implements the methods that all clients have, by the [`Requester`] in a field.
///
/// Methods of the type itself instead of a trait: nobody has to import a trait to set a
/// timeout.
#[doc(hidden)]
#[macro_export]
macro_rules! impl_client {
    ($type:ty, $field:ident) => {
        impl $type {
            /// Sets the reply timeout. Default: 10 s.
            ///
            /// The timeout applies to each datagram of a reply.
            ///
            /// # Errors
            ///
            /// [`Error::Netlink`] if the timeout is zero.
            pub fn set_timeout(&self, timeout: ::std::time::Duration) -> Result<(), Error> {
                self.$field.set_timeout(timeout)
            }

            /// Returns the netlink port ID of the client.
            ///
            /// Listeners use the port ID to ignore changes by this client.
            pub fn port_id(&self) -> u32 {
                self.$field.port_id()
            }

            /// Returns the counters of the socket.
            pub fn counters(&self) -> $crate::Counters {
                self.$field.counters()
            }
        }

        $crate::impl_as_fd!($type, $field);
    };
}

#[cfg(test)]
mod tests {
    use testkit::netns::Netns;

    use super::*;
    use crate::Errno;

    const RTM_GETLINK: u16 = 18;

    #[derive(Debug)]
    struct Change(i32);

    impl fmt::Display for Change {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "change link {}", self.0)
        }
    }

    impl RejectedRequest for Change {
        /// Links from 1,000 on count as denied.
        fn condition(request: Option<&Self>, errno: Errno) -> Option<Condition> {
            match request {
                Some(Self(1000..)) => Some(Condition::Denied),
                _ => Condition::of(errno),
            }
        }
    }

    fn open() -> Requester<Change> {
        let netns = Netns::new().unwrap();
        netns.run(|| Requester::open(Protocol::ROUTE)).unwrap()
    }

    /// Encodes `struct ifinfomsg` of the link with this index.
    fn link(index: i32, payload: &mut Vec<u8>) {
        payload.extend_from_slice(&[0; 4]);
        payload.extend_from_slice(&index.to_ne_bytes());
        payload.extend_from_slice(&[0; 8]);
    }

    fn change_each(
        requester: &mut Requester<Change>,
        links: impl IntoIterator<Item = i32>,
        name: impl FnMut(Rejected<i32>) -> Option<Rejected<Change>>,
    ) -> Result<usize, ClientError<Change>> {
        let mut applied = Applied::new();
        let change = |index: &i32, payload: &mut Vec<u8>| {
            link(*index, payload);
            (16, 0)
        };
        requester.request_each(links, change, name, &mut applied)?;
        applied.into_result()
    }

    #[test]
    fn rejected_requests_are_named_and_the_others_counted() {
        let mut requester = open();
        let name = |one: Rejected<i32>| Some(one.map(Change));
        let error = change_each(&mut requester, [1, 998, 1, 999], name).unwrap_err();
        let text = "change link 998: no such device; change link 999: no such device";
        assert_eq!(error.to_string(), text);
        assert!(matches!(error, ClientError::Rejected { done: 2, .. }));
        // A rejection that is no error.
        let done = change_each(&mut requester, [998, 1], |_| None);
        assert_eq!(done.unwrap(), 1);
    }

    #[test]
    fn a_denied_request_ends_the_others() {
        let mut requester = open();
        let name = |one: Rejected<i32>| Some(one.map(Change));
        let error = change_each(&mut requester, [1000; 300], name).unwrap_err();
        assert!(matches!(error, ClientError::Denied), "{error}");
        assert_eq!(requester.counters().messages, 128);
    }

    #[test]
    fn the_error_of_a_request_has_its_operation_and_object() {
        let mut requester = open();
        let request = Request::new(RTM_GETLINK, "list", &"link 999");
        let error = requester.request(request, |payload| link(999, payload), |_| Ok(()));
        let text = "list link 999: no such device";
        assert_eq!(error.unwrap_err().to_string(), text);
    }

    #[test]
    fn a_reply_without_the_requested_value_is_an_error() {
        let mut requester = open();
        let request = Request::new(RTM_GETLINK, "list", &"link 1");
        let encode = |payload: &mut Vec<u8>| link(1, payload);
        let found = requester.get(request, encode, |message| Ok(Some(message.ty)));
        assert_eq!(found.unwrap(), 16);
        let none = requester.get(request, encode, |_| Ok(None::<u16>));
        let error = none.unwrap_err();
        assert!(
            matches!(error, ClientError::Netlink(Error::Timeout)),
            "{error}"
        );
    }
}
