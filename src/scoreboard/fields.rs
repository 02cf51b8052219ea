//! The numbers of a record.

/// How a field behaves when its process dies and when records are added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// Adds up, and outlives its process.
    Counter,
    /// Adds up, and is zero when its process is gone.
    Gauge,
    /// The lowest of all records that have one.
    Lowest,
    /// The highest of all records.
    Highest,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $meaning:ident,)*) => {
        /// A number of a record.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Field { $($(#[$doc])* $name,)* }

        /// All of them, in the order of a record.
        pub const FIELDS: &[Field] = &[$(Field::$name,)*];

        impl Field {
            pub fn meaning(self) -> Meaning {
                match self { $(Field::$name => Meaning::$meaning,)* }
            }
        }
    };
}

fields! {
    JobsUrgent: Gauge,
    JobsReady: Gauge,
    JobsReserved: Gauge,
    JobsDelayed: Gauge,
    JobsBuried: Gauge,
    CmdPut: Counter,
    CmdPeek: Counter,
    CmdPeekReady: Counter,
    CmdPeekDelayed: Counter,
    CmdPeekBuried: Counter,
    CmdReserve: Counter,
    CmdReserveWithTimeout: Counter,
    CmdDelete: Counter,
    CmdRelease: Counter,
    CmdUse: Counter,
    CmdWatch: Counter,
    CmdIgnore: Counter,
    CmdBury: Counter,
    CmdKick: Counter,
    CmdTouch: Counter,
    CmdStats: Counter,
    CmdStatsJob: Counter,
    CmdStatsTube: Counter,
    CmdListTubes: Counter,
    CmdListTubeUsed: Counter,
    CmdListTubesWatched: Counter,
    CmdPauseTube: Counter,
    JobTimeouts: Counter,
    TotalJobs: Counter,
    Tubes: Gauge,
    Waiting: Gauge,
    Connections: Gauge,
    Producers: Gauge,
    Workers: Gauge,
    TotalConnections: Counter,
    /// Processor time of this process, in microseconds.
    UserTime: Counter,
    SystemTime: Counter,
    WalOldest: Lowest,
    WalCurrent: Highest,
    WalMigrated: Counter,
    WalWritten: Counter,
    WalFiles: Gauge,
    /// Room that the log's files take on disk, in bytes.
    WalBytes: Gauge,
    /// Of it, bytes of records that are needed.
    WalBytesLive: Gauge,
    /// Puts and other changes refused because the log found no room for them.
    WalRefused: Counter,
    WalSyncs: Counter,
    /// The server's clock when the last sync ended, in nanoseconds.
    WalSyncedAt: Highest,
    /// The highest id that the slot has handed out; a later generation goes on above it.
    LastId: Highest,
    /// Virtual connections that the owner holds.
    VirtualConnections: Gauge,
    /// Commands that owners have and have not answered, waiting reserves included; looked up at each ping.
    InFlight: Gauge,
    /// Bytes that wait to go out over this process's links; looked up at each ping.
    LinkQueued: Gauge,
    /// Reserves refused because they watched several tubes on several slots.
    RefusedMultiWatch: Counter,
    /// Clients that this frontend takes at a time.
    ClientsMax: Gauge,
    /// Declared bytes of bodies that have not wholly arrived.
    UnfinishedBytes: Gauge,
    /// Puts refused because there were too many of them.
    RefusedBodies: Counter,
    /// Clients cut off because they were silent for too long, and because of a body that made no end.
    IdleClients: Counter,
    LateBodies: Counter,
    /// Clients sent away because there were as many from their address, and commands refused by their word.
    RefusedAddresses: Counter,
    RefusedCommands: Counter,
    /// Times that accepting paused: there were that many, or no descriptor was left.
    AcceptPauses: Counter,
    /// Connections closed because the outcome of a command is unknown.
    UnknownOutcomes: Counter,
    /// Generations of this process so far; written by the supervisor.
    Generation: Counter,
}
