//! The text of objects in nft syntax.

mod display;

mod expr;

mod listing;

mod literal;

mod operation;

mod script;
