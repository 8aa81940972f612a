//! Locks that several may hold at once: random sequences, and the collected attacks.

mod attacks;
mod keeper;
mod property;
mod scene;
