//! Mode kernelspace with HNS in memory.

mod facts;
mod laws;
mod node;
mod script;
