//! Encoding of requests.

use std::net::{IpAddr, Ipv4Addr};

use vipline_netlink::attr::{nest, put, put_be16, put_be32, put_str, put_u32};
use vipline_netlink::message::{NLM_F_CREATE, NLM_F_EXCL};

use super::put_header;
use crate::uapi::*;
use crate::{
    Expectation, Family, Filter, Flow, Key, Labels, Layer4, Protocol, Status, Tuple, Update,
};

/// Version of `struct nfgenmsg` from which the kernel applies the family of a flush.
const VERSION_WITH_FAMILY: u8 = 1;

/// A request to ctnetlink.
///
/// [`Flows`](Self::Flows), [`FlowsOfFamily`](Self::FlowsOfFamily),
/// [`FlowsAndZero`](Self::FlowsAndZero), [`Dying`](Self::Dying),
/// [`Unconfirmed`](Self::Unconfirmed), [`Statistics`](Self::Statistics) and
/// [`Expectations`](Self::Expectations) must be sent with `NLM_F_DUMP`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Dumps flows; the reply may include flows that do not match the filter.
    Flows(&'a Filter),
    /// Dumps the flows of a family, or of all, without a filter that old kernels reject.
    FlowsOfFamily(Option<Family>),
    /// Dumps all flows and sets their counters to zero.
    FlowsAndZero,
    /// Dumps the dying list: destroyed flows whose event is not delivered yet.
    Dying,
    /// Dumps the unconfirmed list: flows whose first packet is still in the stack.
    Unconfirmed,
    /// Gets one flow.
    Flow(&'a Key),
    /// Gets one flow and sets its counters to zero.
    FlowAndZero(&'a Key),
    /// Creates a flow.
    Create(&'a Flow),
    /// Updates a flow; the kernel ignores the ID.
    Update(&'a Key, Update),
    /// Deletes a flow.
    Delete(&'a Key),
    /// Deletes all matching flows.
    ///
    /// A kernel that does not support a condition of the filter also deletes other flows.
    /// Therefore [`Client::flush`](crate::Client::flush) first sends
    /// [`Request::ProbeFlush`].
    Flush(&'a Filter),
    /// Flushes the flows of a tuple that no flow has.
    ///
    /// Only a kernel that supports flushes by tuple acknowledges the request.
    ProbeFlush,
    /// Dumps the statistics of each CPU.
    Statistics,
    /// Gets the number of entries in the table and its maximum size.
    Usage,
    /// Dumps all expectations.
    Expectations,
    /// Creates an expectation.
    CreateExpectation(&'a Expectation),
    /// Updates the timeout of an expectation.
    UpdateExpectation(&'a Expectation),
    /// Deletes an expectation; with an ID, only the expectation with this ID.
    DeleteExpectation(&'a Expectation),
    /// Deletes all expectations.
    FlushExpectations,
}

impl Request<'_> {
    /// Returns the message type.
    pub fn ty(&self) -> u16 {
        let flow = |message| [NFNL_SUBSYS_CTNETLINK, message];
        let expectation = |message| [NFNL_SUBSYS_CTNETLINK_EXP, message];
        u16::from_be_bytes(match self {
            Self::Create(_) | Self::Update(..) => flow(IPCTNL_MSG_CT_NEW),
            Self::Flows(_) | Self::FlowsOfFamily(_) | Self::Flow(_) => flow(IPCTNL_MSG_CT_GET),
            Self::Delete(_) | Self::Flush(_) | Self::ProbeFlush => flow(IPCTNL_MSG_CT_DELETE),
            Self::FlowsAndZero | Self::FlowAndZero(_) => flow(IPCTNL_MSG_CT_GET_CTRZERO),
            Self::Statistics => flow(IPCTNL_MSG_CT_GET_STATS_CPU),
            Self::Usage => flow(IPCTNL_MSG_CT_GET_STATS),
            Self::Dying => flow(IPCTNL_MSG_CT_GET_DYING),
            Self::Unconfirmed => flow(IPCTNL_MSG_CT_GET_UNCONFIRMED),
            Self::CreateExpectation(_) | Self::UpdateExpectation(_) => {
                expectation(IPCTNL_MSG_EXP_NEW)
            }
            Self::Expectations => expectation(IPCTNL_MSG_EXP_GET),
            Self::DeleteExpectation(_) | Self::FlushExpectations => {
                expectation(IPCTNL_MSG_EXP_DELETE)
            }
        })
    }

    /// Returns the flags in addition to `NLM_F_REQUEST`, `NLM_F_ACK` and `NLM_F_DUMP`.
    pub fn flags(&self) -> u16 {
        match self {
            Self::Create(_) | Self::CreateExpectation(_) => NLM_F_CREATE | NLM_F_EXCL,
            _ => 0,
        }
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Flows(filter) => {
                put_header(out, number(filter.only_family()), 0);
                filter.encode(out);
            }
            Self::FlowsOfFamily(family) => put_header(out, number(*family), 0),
            Self::Flow(key) | Self::FlowAndZero(key) | Self::Delete(key) => put_key(out, key),
            Self::Create(flow) => put_new(out, flow),
            Self::Update(key, change) => {
                put_key(out, key);
                if let Some(seconds) = change.timeout {
                    put_be32(out, CTA_TIMEOUT, seconds);
                }
                if let Some((value, mask)) = change.mark {
                    put_be32(out, CTA_MARK, value & mask);
                    // The kernel keeps the bits outside of the mask.
                    put_be32(out, CTA_MARK_MASK, mask);
                }
                if let Some((value, mask)) = change.labels {
                    put_labels(out, value & mask, mask);
                }
            }
            Self::Flush(filter) => {
                put_header(out, number(filter.only_family()), VERSION_WITH_FAMILY);
                filter.encode(out);
            }
            Self::ProbeFlush => put_probe(out),
            Self::CreateExpectation(expectation) | Self::UpdateExpectation(expectation) => {
                expectation.encode(out);
            }
            Self::DeleteExpectation(expectation) => expectation.encode_key(out),
            Self::FlowsAndZero
            | Self::Dying
            | Self::Unconfirmed
            | Self::Statistics
            | Self::Usage
            | Self::Expectations
            | Self::FlushExpectations => put_header(out, NFPROTO_UNSPEC, 0),
        }
    }
}

fn number(family: Option<Family>) -> u8 {
    family.map_or(NFPROTO_UNSPEC, Family::number)
}

fn put_key(out: &mut Vec<u8>, key: &Key) {
    put_header(out, key.original.family().number(), 0);
    key.original.encode(out, CTA_TUPLE_ORIG);
    if let Some(zone) = key.zone {
        put_be16(out, CTA_ZONE, zone);
    }
    if let Some(id) = key.id {
        put_be32(out, CTA_ID, id);
    }
}

/// Appends all words of labels and of their mask.
fn put_labels(out: &mut Vec<u8>, value: u128, mask: u128) {
    for (kind, bits) in [(CTA_LABELS, value), (CTA_LABELS_MASK, mask)] {
        let Labels(mut bytes) = Labels::from_bits(bits);
        bytes.resize(size_of::<u128>(), 0);
        put(out, kind, &bytes);
    }
}

/// Appends the payload of a creation.
fn put_new(out: &mut Vec<u8>, flow: &Flow) {
    let nat = flow.status & (Status::SRC_NAT | Status::DST_NAT);
    put_header(out, flow.family().number(), 0);
    flow.original.encode(out, CTA_TUPLE_ORIG);
    // The kernel derives the translated reply from the NAT attributes.
    let mut reply = flow.reply;
    if !nat.is_empty() {
        reply = flow.original.inverted();
        reply.zone = flow.reply.zone;
    }
    reply.encode(out, CTA_TUPLE_REPLY);
    // Entries of the table are confirmed; the kernel sets the NAT bits itself.
    let status = (flow.status | Status::CONFIRMED) - nat;
    put_be32(out, CTA_STATUS, status.bits());
    if nat.contains(Status::DST_NAT) {
        put_nat(
            out,
            CTA_NAT_DST,
            flow.reply.source,
            flow.reply.source_port(),
        );
    }
    if nat.contains(Status::SRC_NAT) {
        let port = flow.reply.destination_port();
        put_nat(out, CTA_NAT_SRC, flow.reply.destination, port);
    }
    if let Some(state) = &flow.state {
        nest(out, CTA_PROTOINFO, |out| state.encode(out));
    }
    for (kind, number) in [(CTA_TIMEOUT, flow.timeout), (CTA_MARK, flow.mark)] {
        if let Some(number) = number {
            put_be32(out, kind, number);
        }
    }
    if let Some(zone) = flow.zone {
        put_be16(out, CTA_ZONE, zone);
    }
    let Some(extension) = flow.extension.as_deref() else {
        return;
    };
    if let Some(helper) = &extension.helper {
        nest(out, CTA_HELP, |out| {
            put_str(out, CTA_HELP_NAME, helper);
        });
    }
    if let Some(Labels(bytes)) = &extension.labels {
        put(out, CTA_LABELS, bytes);
    }
    if let Some(master) = &extension.master {
        master.encode(out, CTA_TUPLE_MASTER);
    }
}

/// Appends the address and the port of a translation (`CTA_NAT_*`).
fn put_nat(out: &mut Vec<u8>, kind: u16, address: IpAddr, port: Option<u16>) {
    nest(out, kind, |out| {
        match address {
            IpAddr::V4(ip) => {
                put(out, CTA_NAT_V4_MINIP, &ip.octets());
                put(out, CTA_NAT_V4_MAXIP, &ip.octets());
            }
            IpAddr::V6(ip) => {
                put(out, CTA_NAT_V6_MINIP, &ip.octets());
                put(out, CTA_NAT_V6_MAXIP, &ip.octets());
            }
        }
        if let Some(port) = port {
            nest(out, CTA_NAT_PROTO, |out| {
                put_be16(out, CTA_PROTONAT_PORT_MIN, port);
                put_be16(out, CTA_PROTONAT_PORT_MAX, port);
            });
        }
    });
}

/// Appends a flush of flows between 0.0.0.0 and 0.0.0.0 of the reserved protocol 255.
///
/// A kernel without flushes by tuple instead deletes that flow, which does not exist.
fn put_probe(out: &mut Vec<u8>) {
    let unspecified = Ipv4Addr::UNSPECIFIED.into();
    let tuple = Tuple {
        source: unspecified,
        destination: unspecified,
        protocol: Protocol(255),
        layer4: Layer4::None,
        zone: None,
    };
    put_header(out, Family::V4.number(), VERSION_WITH_FAMILY);
    tuple.encode(out, CTA_TUPLE_ORIG);
    nest(out, CTA_FILTER, |out| {
        let addresses = CTA_FILTER_F_CTA_IP_SRC | CTA_FILTER_F_CTA_IP_DST;
        let flags = addresses | CTA_FILTER_F_CTA_PROTO_NUM;
        put_u32(out, CTA_FILTER_ORIG_FLAGS, flags);
    });
}
