//! Client methods for other lists of the kernel: dying and unconfirmed flows, counters
//! that are reset, and expectations.

use vipline_netlink::Dump;

use crate::client::ATTEMPTS;
use crate::wire::Request;
use crate::{Client, Error, Expectation, Filter, Flow, Key};

/// Other lists than the table of flows.
impl Client {
    /// Returns the dying list, like `conntrack -L dying`: destroyed flows whose event is
    /// not delivered yet, because a receive buffer was full.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request; any other [`Error`] if the
    /// reply was lost or malformed.
    pub fn dying(&mut self) -> Result<Dump<Vec<Flow>>, Error> {
        self.flows_of(&Request::Dying)
    }

    /// Returns the unconfirmed list, like `conntrack -L unconfirmed`: flows whose first
    /// packet is still in the network stack.
    ///
    /// Linux 5.19 and later have no such list and return no flows.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request; any other [`Error`] if the
    /// reply was lost or malformed.
    pub fn unconfirmed(&mut self) -> Result<Dump<Vec<Flow>>, Error> {
        self.flows_of(&Request::Unconfirmed)
    }

    /// Returns the flows that match the filter, and sets their counters to zero, like
    /// `conntrack -L -z`.
    ///
    /// No packet is lost between reading and resetting the counters of a flow.
    /// Counters of flows that do not match stay unchanged: except for a filter that
    /// matches all flows, the client dumps the flows and requests each.
    ///
    /// # Errors
    ///
    /// The errors of [`dump`](Self::dump). Counters of some flows may be zero then.
    pub fn zero_counters(&mut self, filter: &Filter) -> Result<Dump<Vec<Flow>>, Error> {
        if *filter == Filter::new() {
            // A second attempt would lose the counters of the first.
            return self.list(&Request::FlowsAndZero, 1, Vec::new, push_flow);
        }
        let mut keys = Vec::new();
        let dump = self.dump(filter, |flow| keys.push(flow.key()))?;
        let mut flows = Vec::new();
        for key in keys {
            flows.extend(self.zero_counters_of(&key)?);
        }
        Ok(match dump {
            Dump::Complete(()) => Dump::Complete(flows),
            Dump::Interrupted(()) => Dump::Interrupted(flows),
        })
    }

    /// Returns a flow and sets its counters to zero. Returns `None` if the flow does not
    /// exist. The kernel ignores the ID.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request; any other [`Error`] if the
    /// reply was lost or malformed.
    pub fn zero_counters_of(&mut self, key: &Key) -> Result<Option<Flow>, Error> {
        let mut found = None;
        let result = self.request(&Request::FlowAndZero(key), "zero", key, |payload| {
            found = Some(Flow::decode(payload)?);
            Ok(())
        });
        match result {
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(found),
        }
    }

    fn flows_of(&mut self, request: &Request<'_>) -> Result<Dump<Vec<Flow>>, Error> {
        self.list(request, ATTEMPTS, Vec::new, push_flow)
    }

    /// Returns all expectations, like `conntrack -L expect`.
    ///
    /// An interrupted dump is repeated, up to three attempts in total.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request; any other [`Error`] if the
    /// reply was lost or malformed.
    pub fn expectations(&mut self) -> Result<Dump<Vec<Expectation>>, Error> {
        let push = |all: &mut Vec<_>, payload: &[u8]| {
            all.push(Expectation::decode(payload)?);
            Ok(())
        };
        self.list(&Request::Expectations, ATTEMPTS, Vec::new, push)
    }

    /// Creates an expectation, which must have a timeout.
    ///
    /// If a helper is attached to the master flow, the policy of the helper replaces the
    /// timeout.
    ///
    /// # Errors
    ///
    /// - [`Error::Kernel`]: the kernel rejected the expectation, with
    ///   [`is_already_exists`](Error::is_already_exists) if the tuple is expected
    ///   already, [`is_not_found`](Error::is_not_found) if the master flow does not
    ///   exist, or `EOPNOTSUPP` if the master flow has no helper.
    /// - Any other [`Error`]: the reply was lost or malformed.
    pub fn create_expectation(&mut self, expectation: &Expectation) -> Result<(), Error> {
        let request = Request::CreateExpectation(expectation);
        self.request(&request, "create expectation", &expectation.tuple, |_| {
            Ok(())
        })
    }

    /// Sets the timeout of an expectation. The kernel finds the expectation by its tuple
    /// and zone.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the update, with
    /// [`is_not_found`](Error::is_not_found) if the expectation does not exist. Any other
    /// [`Error`] if the reply was lost or malformed.
    pub fn update_expectation(&mut self, expectation: &Expectation) -> Result<(), Error> {
        let request = Request::UpdateExpectation(expectation);
        self.request(&request, "update expectation", &expectation.tuple, |_| {
            Ok(())
        })
    }

    /// Deletes an expectation, and returns whether it existed. With an ID, no other
    /// expectation with the same tuple is deleted.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the deletion; any other [`Error`] if the
    /// reply was lost or malformed.
    pub fn delete_expectation(&mut self, expectation: &Expectation) -> Result<bool, Error> {
        let request = Request::DeleteExpectation(expectation);
        match self.request(&request, "delete expectation", &expectation.tuple, |_| {
            Ok(())
        }) {
            Err(error) if error.is_not_found() => Ok(false),
            deleted => deleted.map(|()| true),
        }
    }

    /// Deletes all expectations, including those of other programs.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel rejected the request; any other [`Error`] if the
    /// reply was lost or malformed.
    pub fn flush_expectations(&mut self) -> Result<(), Error> {
        self.request(
            &Request::FlushExpectations,
            "flush",
            &"expectations",
            |_| Ok(()),
        )
    }
}

fn push_flow(all: &mut Vec<Flow>, payload: &[u8]) -> Result<(), vipline_netlink::Error> {
    all.push(Flow::decode(payload)?);
    Ok(())
}
