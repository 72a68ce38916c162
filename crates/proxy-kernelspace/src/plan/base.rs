//! Objects that do not depend on Services.

use vipline_service_model::Family;

use super::object::{Endpoint, EndpointKind, Object};
use crate::Settings;
use proxy_engine::Context;

/// Returns the source VIP of an overlay network.
///
/// ```hns
/// source VIP 10.244.1.2
/// ```
pub(super) fn objects(cx: &Context, settings: &Settings) -> Vec<Object> {
    let source = settings
        .source_vip
        .filter(|source| Family::of(*source) == cx.family);
    let endpoint = |address| Endpoint {
        address,
        kind: EndpointKind::SourceVip,
        mac: settings.host_mac.clone(),
        provider: None,
    };
    let source = source.filter(|_| settings.is_overlay).map(endpoint);
    source.into_iter().map(Object::from).collect()
}
