//! Encoding and decoding of flows.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, nest, put, put_be16, put_be32, put_be64, put_str};

use super::{attributes, put_header};
use crate::uapi::*;
use crate::{
    Counters, Extension, Flow, FlowCounters, Labels, Other, SeqAdj, State, Status, Synproxy,
    Timestamps, Tuple,
};

impl Flow {
    /// Decodes the payload of a message with a flow.
    ///
    /// # Errors
    ///
    /// The payload is malformed or lacks a tuple.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let all = Attrs::new(attributes(payload)?);
        // The kernel sends the tuples first, so the second loop usually goes on where this one
        // ends. It starts again if another attribute came before.
        let (mut rest, mut skipped) = (all, false);
        let (mut original, mut reply) = (None, None);
        while original.is_none() || reply.is_none() {
            let Some(attr) = rest.next() else { break };
            let attr = attr?;
            match attr.kind {
                CTA_TUPLE_ORIG => original = Some(Tuple::decode(attr)?),
                CTA_TUPLE_REPLY => reply = Some(Tuple::decode(attr)?),
                _ => skipped = true,
            }
        }
        let missing = |kind| move || DecodeError::new("flow with both tuples", kind, 0);
        let original = original.ok_or_else(missing(CTA_TUPLE_ORIG))?;
        let mut flow = Self::new(original, reply.ok_or_else(missing(CTA_TUPLE_REPLY))?);
        for attr in if skipped { all } else { rest } {
            flow.set(attr?)?;
        }
        // Empty attributes create no extension.
        let is_empty = |extension: &Extension| *extension == Extension::default();
        if flow.extension.as_deref().is_some_and(is_empty) {
            flow.extension = None;
        }
        Ok(flow)
    }

    /// Decodes an attribute; ignores tuples.
    fn set(&mut self, attr: Attr<'_>) -> Result<(), DecodeError> {
        match attr.kind {
            CTA_TUPLE_ORIG | CTA_TUPLE_REPLY => {}
            CTA_STATUS => self.status = Status::from_bits_retain(attr.be32()?),
            CTA_PROTOINFO => self.state = State::decode(attr)?,
            CTA_TIMEOUT => self.timeout = Some(attr.be32()?),
            CTA_MARK => self.mark = Some(attr.be32()?),
            // The kernel sends both or none (`ctnetlink_dump_acct`).
            CTA_COUNTERS_ORIG => self.counters_mut().original = counters(attr)?,
            CTA_COUNTERS_REPLY => self.counters_mut().reply = counters(attr)?,
            CTA_USE => self.use_count = Some(attr.be32()?),
            CTA_ID => self.id = Some(attr.be32()?),
            CTA_ZONE => self.zone = Some(attr.be16()?),
            // Without an adjustment the kernel sends an empty attribute.
            CTA_SEQ_ADJ_ORIG | CTA_SEQ_ADJ_REPLY if attr.value.is_empty() => {}
            // The kernel gives every flow that a program creates an extension of SYNPROXY with
            // zeros (`ctnetlink_create_conntrack`). It states nothing, and as an `Extension` it
            // would more than double the memory of the flow.
            CTA_SYNPROXY
                if *attr.value == ZERO_SYNPROXY
                    || Synproxy::decode(attr)? == Synproxy::default() => {}
            _ => return self.extension_mut().set(attr),
        }
        Ok(())
    }

    fn counters_mut(&mut self) -> &mut FlowCounters {
        self.counters.get_or_insert_default()
    }

    /// Appends the payload of a message in which the kernel reports the flow.
    ///
    /// [`Request::Create`](super::Request::Create) encodes a creation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, self.family().number(), 0);
        self.original.encode(out, CTA_TUPLE_ORIG);
        self.reply.encode(out, CTA_TUPLE_REPLY);
        put_be32(out, CTA_STATUS, self.status.bits());
        if let Some(state) = &self.state {
            nest(out, CTA_PROTOINFO, |out| state.encode(out));
        }
        for (kind, number) in [
            (CTA_TIMEOUT, self.timeout),
            (CTA_MARK, self.mark),
            (CTA_USE, self.use_count),
            (CTA_ID, self.id),
        ] {
            if let Some(number) = number {
                put_be32(out, kind, number);
            }
        }
        if let Some(counters) = &self.counters {
            for (kind, counters) in [
                (CTA_COUNTERS_ORIG, counters.original),
                (CTA_COUNTERS_REPLY, counters.reply),
            ] {
                let Counters { packets, bytes } = counters;
                nest(out, kind, |out| {
                    put_be64(out, CTA_COUNTERS_PACKETS, packets);
                    put_be64(out, CTA_COUNTERS_BYTES, bytes);
                });
            }
        }
        if let Some(zone) = self.zone {
            put_be16(out, CTA_ZONE, zone);
        }
        if let Some(extension) = &self.extension {
            extension.encode(out);
        }
    }
}

impl Extension {
    /// Decodes an attribute.
    fn set(&mut self, attr: Attr<'_>) -> Result<(), DecodeError> {
        match attr.kind {
            CTA_HELP => {
                for attr in attr.attrs() {
                    let attr = attr?;
                    match attr.kind {
                        CTA_HELP_NAME => self.helper = Some(attr.str()?.into()),
                        CTA_HELP_INFO => self.helper_info = Some(attr.value.to_vec()),
                        _ => {}
                    }
                }
            }
            CTA_TUPLE_MASTER => self.master = Some(Tuple::decode(attr)?),
            CTA_SEQ_ADJ_ORIG => self.original_seq_adj = Some(SeqAdj::decode(attr)?),
            CTA_SEQ_ADJ_REPLY => self.reply_seq_adj = Some(SeqAdj::decode(attr)?),
            CTA_SECCTX => {
                for attr in attr.attrs() {
                    let attr = attr?;
                    if attr.kind == CTA_SECCTX_NAME {
                        self.security = Some(attr.str()?.into());
                    }
                }
            }
            CTA_TIMESTAMP => self.timestamps = Some(timestamps(attr)?),
            CTA_LABELS => self.labels = Some(Labels(attr.value.to_vec())),
            CTA_SYNPROXY => self.synproxy = Some(Synproxy::decode(attr)?),
            kind => self.other.push(Other {
                kind,
                value: attr.value.to_vec(),
            }),
        }
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(master) = &self.master {
            master.encode(out, CTA_TUPLE_MASTER);
        }
        if let Some(Timestamps { start, stop }) = self.timestamps {
            nest(out, CTA_TIMESTAMP, |out| {
                put_be64(out, CTA_TIMESTAMP_START, start);
                if let Some(stop) = stop {
                    put_be64(out, CTA_TIMESTAMP_STOP, stop);
                }
            });
        }
        if self.helper.is_some() || self.helper_info.is_some() {
            nest(out, CTA_HELP, |out| {
                if let Some(name) = &self.helper {
                    put_str(out, CTA_HELP_NAME, name);
                }
                if let Some(info) = &self.helper_info {
                    put(out, CTA_HELP_INFO, info);
                }
            });
        }
        if let Some(Labels(bytes)) = &self.labels {
            put(out, CTA_LABELS, bytes);
        }
        if let Some(name) = &self.security {
            nest(out, CTA_SECCTX, |out| put_str(out, CTA_SECCTX_NAME, name));
        }
        for (kind, adjustment) in [
            (CTA_SEQ_ADJ_ORIG, self.original_seq_adj),
            (CTA_SEQ_ADJ_REPLY, self.reply_seq_adj),
        ] {
            if let Some(adjustment) = adjustment {
                nest(out, kind, |out| adjustment.encode(out));
            }
        }
        if let Some(synproxy) = self.synproxy {
            nest(out, CTA_SYNPROXY, |out| synproxy.encode(out));
        }
        for Other { kind, value } in &self.other {
            put(out, *kind, value);
        }
    }
}

fn counters(attr: Attr<'_>) -> Result<Counters, DecodeError> {
    let mut counters = Counters::default();
    for attr in attr.attrs() {
        let attr = attr?;
        match attr.kind {
            CTA_COUNTERS_PACKETS => counters.packets = attr.be64()?,
            CTA_COUNTERS_BYTES => counters.bytes = attr.be64()?,
            _ => {}
        }
    }
    Ok(counters)
}

fn timestamps(attr: Attr<'_>) -> Result<Timestamps, DecodeError> {
    let mut timestamps = Timestamps::default();
    for attr in attr.attrs() {
        let attr = attr?;
        match attr.kind {
            CTA_TIMESTAMP_START => timestamps.start = attr.be64()?,
            CTA_TIMESTAMP_STOP => timestamps.stop = Some(attr.be64()?),
            _ => {}
        }
    }
    Ok(timestamps)
}

impl SeqAdj {
    fn decode(attr: Attr<'_>) -> Result<Self, DecodeError> {
        let mut adjustment = Self::default();
        for attr in attr.attrs() {
            let attr = attr?;
            match attr.kind {
                CTA_SEQADJ_CORRECTION_POS => adjustment.correction_pos = attr.be32()?,
                CTA_SEQADJ_OFFSET_BEFORE => adjustment.offset_before = attr.be32()?,
                CTA_SEQADJ_OFFSET_AFTER => adjustment.offset_after = attr.be32()?,
                _ => {}
            }
        }
        Ok(adjustment)
    }

    fn encode(self, out: &mut Vec<u8>) {
        put_be32(out, CTA_SEQADJ_CORRECTION_POS, self.correction_pos);
        put_be32(out, CTA_SEQADJ_OFFSET_BEFORE, self.offset_before);
        put_be32(out, CTA_SEQADJ_OFFSET_AFTER, self.offset_after);
    }
}

/// SYNPROXY data with zeros, as the kernel sends it (`ctnetlink_dump_ct_synproxy`). Compared as
/// bytes before it is decoded, which would be a tenth of the work for a flow.
const ZERO_SYNPROXY: [u8; 24] = {
    const fn header(kind: u16) -> [u8; 4] {
        let ([low, high], [first, second]) = (8_u16.to_ne_bytes(), kind.to_ne_bytes());
        [low, high, first, second]
    }
    let [a, b, c, d] = header(CTA_SYNPROXY_ISN);
    let [e, f, g, h] = header(CTA_SYNPROXY_ITS);
    let [i, j, k, l] = header(CTA_SYNPROXY_TSOFF);
    [
        a, b, c, d, 0, 0, 0, 0, e, f, g, h, 0, 0, 0, 0, i, j, k, l, 0, 0, 0, 0,
    ]
};

impl Synproxy {
    fn decode(attr: Attr<'_>) -> Result<Self, DecodeError> {
        let mut synproxy = Self::default();
        for attr in attr.attrs() {
            let attr = attr?;
            match attr.kind {
                CTA_SYNPROXY_ISN => synproxy.isn = attr.be32()?,
                CTA_SYNPROXY_ITS => synproxy.its = attr.be32()?,
                CTA_SYNPROXY_TSOFF => synproxy.tsoff = attr.be32()?,
                _ => {}
            }
        }
        Ok(synproxy)
    }

    fn encode(self, out: &mut Vec<u8>) {
        put_be32(out, CTA_SYNPROXY_ISN, self.isn);
        put_be32(out, CTA_SYNPROXY_ITS, self.its);
        put_be32(out, CTA_SYNPROXY_TSOFF, self.tsoff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    #[test]
    fn zeros_of_synproxy_are_no_extension_in_any_form() {
        let ends = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let original = Tuple::ports(Protocol::UDP, (ends.0, 1024), (ends.1, 53));
        let flow = Flow::new(original, original.inverted());
        let decoded = |synproxy: &[(u16, u32)]| {
            let mut payload = Vec::new();
            flow.encode(&mut payload);
            nest(&mut payload, CTA_SYNPROXY, |out| {
                for (kind, number) in synproxy {
                    put_be32(out, *kind, *number);
                }
            });
            Flow::decode(&payload).unwrap().extension
        };
        let all = [CTA_SYNPROXY_ISN, CTA_SYNPROXY_ITS, CTA_SYNPROXY_TSOFF];
        assert_eq!(decoded(&all.map(|kind| (kind, 0))), None);
        // Not in the form that the kernel sends.
        assert_eq!(decoded(&[(CTA_SYNPROXY_ITS, 0)]), None);
        assert_eq!(decoded(&[]), None);
        let extension = decoded(&[(CTA_SYNPROXY_ISN, 7)]).unwrap();
        assert_eq!(extension.synproxy.unwrap().isn, 7);
    }
}
