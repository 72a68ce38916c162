//! Conversion of loads from optional headers, routes, sockets and IPsec transformations
//! to libnftnl objects.
#![forbid(unsafe_code)]

use super::AnyExpr;
use super::attributes::*;
use super::exprs::Builder;
use crate::Error;
use crate::expr::*;

// enum nft_osf_flags
const NFT_OSF_F_VERSION: u32 = 1;

pub(super) fn exthdr(exthdr: &Exthdr) -> Result<AnyExpr, Error> {
    let object = Builder::<Exthdr>::new()?
        .number(NFTNL_EXPR_EXTHDR_TYPE, exthdr.kind)
        .number(NFTNL_EXPR_EXTHDR_OP, exthdr.op.number());
    match exthdr.access {
        ExthdrAccess::Load {
            destination,
            offset,
            len,
            present,
        } => object
            .register(NFTNL_EXPR_EXTHDR_DREG, destination)
            .number(NFTNL_EXPR_EXTHDR_OFFSET, offset)
            .number(NFTNL_EXPR_EXTHDR_LEN, len)
            .number(NFTNL_EXPR_EXTHDR_FLAGS, present.into()),
        ExthdrAccess::Store {
            source,
            offset,
            len,
        } => object
            .register(NFTNL_EXPR_EXTHDR_SREG, source)
            .number(NFTNL_EXPR_EXTHDR_OFFSET, offset)
            .number(NFTNL_EXPR_EXTHDR_LEN, len),
        ExthdrAccess::Reset => object,
    }
    .done()
}

pub(super) fn rt(rt: &Rt) -> Result<AnyExpr, Error> {
    Builder::<Rt>::new()?
        .number(NFTNL_EXPR_RT_KEY, rt.key.number())
        .register(NFTNL_EXPR_RT_DREG, rt.destination)
        .done()
}

pub(super) fn socket(socket: &Socket) -> Result<AnyExpr, Error> {
    let level = match socket.key {
        SocketKey::Cgroupv2(level) => Some(level),
        _ => None,
    };
    Builder::<Socket>::new()?
        .number(NFTNL_EXPR_SOCKET_KEY, socket.key.number())
        .register(NFTNL_EXPR_SOCKET_DREG, socket.destination)
        .number_if(NFTNL_EXPR_SOCKET_LEVEL, level)
        .done()
}

pub(super) fn xfrm(xfrm: &Xfrm) -> Result<AnyExpr, Error> {
    let direction = match xfrm.direction {
        XfrmDirection::In => 0,
        XfrmDirection::Out => 1,
    };
    Builder::<Xfrm>::new()?
        .number(NFTNL_EXPR_XFRM_KEY, xfrm.key.number())
        .number(NFTNL_EXPR_XFRM_DIR, direction)
        .number(NFTNL_EXPR_XFRM_SPNUM, xfrm.spnum)
        .register(NFTNL_EXPR_XFRM_DREG, xfrm.destination)
        .done()
}

pub(super) fn osf(osf: &Osf) -> Result<AnyExpr, Error> {
    let ttl = match osf.ttl {
        OsfTtl::True => 0,
        OsfTtl::Less => 1,
        OsfTtl::NoCheck => 2,
    };
    Builder::<Osf>::new()?
        .register(NFTNL_EXPR_OSF_DREG, osf.destination)
        .number(NFTNL_EXPR_OSF_TTL, ttl)
        .number_if(
            NFTNL_EXPR_OSF_FLAGS,
            osf.version.then_some(NFT_OSF_F_VERSION),
        )
        .done()
}
