//! Locks that several may hold at once: random sequences, the collected attacks, and a world that knows who is gone.

mod attacks;
mod gone;
mod guests;
mod keeper;
mod names;
mod property;
mod quiet;
mod scene;
