//! Benches of Vipline: micro benches and the figures of performance.
