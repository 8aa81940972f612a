//! The two tiers of tests that run on every store: which of the cases `scripts/test` runs, and which only
//! `scripts/test --all`.

/// A test for each case of `$modules`; `$up` is the way from there to the cases.
macro_rules! modules {
    ($at:expr, $up:tt; $($module:ident: [$($case:ident)*])*) => {
        $(mod $module {
            $(modules! { @case $at, $up, $module, $case })*
        })*
    };
    (@case $at:expr, [$($up:ident)*], $module:ident, $case:ident) => {
        #[test]
        fn $case() {
            use $($up::)**;
            run($at, |store| $($up::)*$module::$case(store));
        }
    };
}

/// The tests of a store. What its tier leaves out is in the module `full`, which only `scripts/test --all` runs.
///
/// - `whole`: nothing is left out
/// - `stores`: what touches something that differs between stores, generations and topologies
/// - `threads`: that, and what a thread does otherwise than a task: dropping, closing, entering again
/// - `full`: all of it is left out
macro_rules! tests {
    ($store:ident, $at:expr, $tier:ident; $($module:ident: {
        $(stores: [$($a:ident),* $(,)?],)?
        $(threads: [$($b:ident),* $(,)?],)?
        $(rest: [$($c:ident),* $(,)?],)?
    })*) => {
        mod $store {
            tests! { @$tier $at; $($module: [$($($a)*)?] [$($($b)*)?] [$($($c)*)?])* }
        }
    };
    (@whole $at:expr; $($module:ident: [$($a:ident)*] [$($b:ident)*] [$($c:ident)*])*) => {
        modules! { $at, [super super]; $($module: [$($a)* $($b)* $($c)*])* }
    };
    (@stores $at:expr; $($module:ident: [$($a:ident)*] [$($b:ident)*] [$($c:ident)*])*) => {
        modules! { $at, [super super]; $($module: [$($a)*])* }
        mod full { modules! { $at, [super super super]; $($module: [$($b)* $($c)*])* } }
    };
    (@threads $at:expr; $($module:ident: [$($a:ident)*] [$($b:ident)*] [$($c:ident)*])*) => {
        modules! { $at, [super super]; $($module: [$($a)* $($b)*])* }
        mod full { modules! { $at, [super super super]; $($module: [$($c)*])* } }
    };
    (@full $at:expr; $($module:ident: [$($a:ident)*] [$($b:ident)*] [$($c:ident)*])*) => {
        mod full { modules! { $at, [super super super]; $($module: [$($a)* $($b)* $($c)*])* } }
    };
}

/// The stores of the contract, and how much of it the commit tier runs on each.
macro_rules! contract_stores {
    ($on:ident) => {
        $on!(memory, At::Memory, whole; with futures);
        #[cfg(feature = "sqlite")]
        $on!(host, At::Host, whole; with futures);
        $on!(redis62, At::Server(Generation::Redis62), stores; with futures);
        $on!(redis70, At::Server(Generation::Redis70), whole; with futures);
        $on!(redis80, At::Server(Generation::Redis80), stores; with futures);
        $on!(valkey81, At::Server(Generation::Valkey81), stores; with futures);
        $on!(valkey91, At::Server(Generation::Valkey91), stores; with futures);
        $on!(cluster62, At::Cluster(Generation::Redis62), stores; with futures);
        $on!(cluster70, At::Cluster(Generation::Redis70), whole; with futures);
        $on!(sentinel, At::Sentinel(Generation::Redis70), stores; with futures);
        #[cfg(feature = "tls")]
        $on!(tls, At::Tls(Generation::Redis70), stores; with futures);
    };
}
