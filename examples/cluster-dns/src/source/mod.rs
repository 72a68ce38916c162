//! Objects from manifests or from an API server, applied to the zone.
