//! Match `owner` as `struct xt_owner_match_info`.

use vipline_nftables::Bytes;

use super::structure::{Reader, Writer};
use crate::matches::Owner;
use crate::negatable::Negatable;
use crate::number::Range;

// Flags of `linux/netfilter/xt_owner.h`.
const UID: u8 = 1;
const GID: u8 = 2;
const SOCKET: u8 = 4;
const SUPPL_GROUPS: u8 = 8;

/// A condition on IDs.
type Ids = Option<Negatable<Range<u32>>>;

/// Returns the structure of the match.
pub(super) fn encode(it: &Owner) -> Bytes {
    let put = |out: Writer, ids: &Ids| match ids.as_ref().map(Negatable::value) {
        Some(Range { first, last }) => out.u32(*first).u32(*last),
        None => out.zeros(8),
    };
    let ids = |ids: &Ids, bit| ids.as_ref().map(|ids| (bit, ids.is_negated()));
    let socket = it.socket_exists.as_ref();
    let conditions = [
        ids(&it.uid, UID),
        ids(&it.gid, GID),
        socket.map(|socket| (SOCKET, socket.is_negated())),
        it.suppl_groups.then_some((SUPPL_GROUPS, false)),
    ];
    let conditions = conditions.into_iter().flatten();
    let [used, negated] = conditions.fold([0, 0], |[used, negated], (bit, is_negated)| {
        [used | bit, negated | if is_negated { bit } else { 0 }]
    });
    let out = put(put(Writer::default(), &it.uid), &it.gid);
    out.u8(used).u8(negated).finish()
}

/// Returns the match of a structure. Returns `None` for unknown flags.
pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Owner> {
    let [uid, gid] = [read_ids(reader)?, read_ids(reader)?];
    let [used, negated] = reader.array()?;
    if used > UID | GID | SOCKET | SUPPL_GROUPS || negated & SUPPL_GROUPS != 0 {
        return None;
    }
    let ids = |bit, ids| (used & bit != 0).then(|| Negatable::new(negated & bit != 0, ids));
    Some(Owner {
        socket_exists: (used & SOCKET != 0).then(|| Negatable::new(negated & SOCKET != 0, ())),
        uid: ids(UID, uid),
        gid: ids(GID, gid),
        suppl_groups: used & SUPPL_GROUPS != 0,
    })
}

fn read_ids(reader: &mut Reader<'_>) -> Option<Range<u32>> {
    let (first, last) = (reader.u32()?, reader.u32()?);
    Some(Range { first, last })
}
