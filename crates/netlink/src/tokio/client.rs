//! Calls of blocking clients beside the tasks of a runtime.

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// A blocking client in an async program.
///
/// [`call`](Self::call) runs one or several requests on a thread that may block, and waits for
/// the result. So it serves every client of every crate, and also `iptables::Client`, which
/// runs programs. Clones share the client.
///
/// ```no_run
/// # async fn f() -> Result<(), vipline_netlink::Error> {
/// use vipline_netlink::tokio::AsyncClient;
/// use vipline_netlink::{Protocol, Socket};
///
/// let client = AsyncClient::new(Socket::open(Protocol::GENERIC)?);
/// let family = client.call(|socket| socket.resolve_family("ipset")).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Why a thread, and no readiness of the socket
///
/// Because there is nothing to wait for. The kernel executes a netlink request inside of the
/// system call that sends it: `sendmsg` calls `netlink_unicast_kernel`, which calls the
/// subsystem and its locks, and when it returns, the reply is in the receive buffer. Of a dump,
/// `sendmsg` executes the beginning, and each `recvmsg` the next part. All time passes
/// inside of these calls, also that for a lock which another program holds. A non-blocking
/// socket does not change this: it would execute the transaction of ten thousand rules on the
/// thread of the runtime, and all other tasks of this thread would wait.
///
/// A call costs the way to the other thread and back. If you know that a request is small and
/// nobody holds the lock of the subsystem for long, call the client itself in your task instead.
///
/// # Cancellation
///
/// A call that is dropped while it waits for another one does nothing. Afterwards it runs to its
/// end on its thread: the change may be applied, and only the result is lost. So no reply is left
/// in the socket half-read, and the next call waits until the client is free.
#[derive(Debug)]
pub struct AsyncClient<C> {
    client: Arc<Mutex<C>>,
}

impl<C: Send + 'static> AsyncClient<C> {
    /// Takes a client.
    pub fn new(client: C) -> Self {
        Self {
            client: Arc::new(Mutex::new(client)),
        }
    }

    /// Calls `work` with the client on a thread that may block, and returns its value.
    ///
    /// One call at a time has the client, in the order in which they began to wait.
    /// `work` moves its arguments and its result to another thread.
    ///
    /// # Panics
    ///
    /// - If `work` panics, with the same payload. The client is usable for the next call.
    /// - Outside of a runtime of tokio, and if the runtime ends before the thread has begun.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut C) -> T + Send + 'static,
    ) -> T {
        // The thread owns the lock, so that a dropped call keeps it until the thread is done.
        let mut client = Arc::clone(&self.client).lock_owned().await;
        let result = spawn_blocking(move || work(&mut client)).await;
        result.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(payload) => resume_unwind(payload),
            Err(error) => panic!("the runtime ended before the call: {error}"),
        })
    }
}

impl<C> Clone for AsyncClient<C> {
    fn clone(&self) -> Self {
        Self {
            client: Arc::clone(&self.client),
        }
    }
}
