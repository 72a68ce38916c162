//! Check of the kernel's features, and the timeouts of IPVS.

use vipline_ipset as ipset;
use vipline_ipvs::{self as ipvs, Timeouts};

use crate::{Error, Ipvs};

/// Checks whether the kernel supports IPVS and ip_set, and makes the kernel load the
/// modules.
///
/// Other errors are reported when the engine opens.
pub(in crate::backend) fn check_kernel() -> Result<(), Error> {
    if let Err(error @ ipvs::Error::Unsupported { .. }) = ipvs::Client::open() {
        return Err(error.into());
    }
    match ipset::Client::open() {
        Err(error @ ipset::Error::Unsupported { .. }) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Sets the configured timeouts of IPVS. Zero leaves a timeout unchanged.
pub(in crate::backend) fn set_timeouts(config: &Ipvs) -> Result<(), Error> {
    let timeouts = Timeouts {
        tcp: config.tcp_timeout,
        tcp_fin: config.tcp_fin_timeout,
        udp: config.udp_timeout,
    };
    if timeouts == Timeouts::default() {
        return Ok(());
    }
    let set = ipvs::Client::open().and_then(|mut client| client.set_timeouts(&timeouts));
    set.map_err(Error::of("IPVS timeouts cannot be set and stay unchanged"))
}
