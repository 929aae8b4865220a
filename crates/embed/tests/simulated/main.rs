//! The in-flight helper on simulated chips: the trap of a loop that waits, and random hosts.

mod hosts;
mod run;
mod trap;
