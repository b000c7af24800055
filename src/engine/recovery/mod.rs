// SPDX-License-Identifier: GPL-2.0

//! What a volume that was not shut down has in its recovery journal.
//!
//! | file       | what it does                                                                        |
//! |------------|-------------------------------------------------------------------------------------|
//! | `parallel` | runs a piece of work for many indices, several at a time                            |
//! | `window`   | reads the journal piece by piece, with memory that does not depend on its size      |
//! | `scan`     | finds the part of the journal that counts: heads, tail, and how far blocks can be believed |
//! | `chain`    | walks through the entries of that part, or of everything for a rebuild              |
//! | `changes`  | sorts changes of the block map by page, so that each page is fetched once in a batch |
//!
//! Nothing here writes. What is done with the entries is in [`crate::engine::volume`].
//!
//! Used while a volume is loaded, by one task; only `parallel` starts others, and waits for them. No lock is held across an
//! await, and none is taken while another is held.

pub mod chain;
pub mod changes;
pub mod parallel;
pub mod scan;
pub mod window;
