//! What can be asked: fields with their units, and words.

/// What a filter can ask of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Utilisation, percent.
    Util,
    /// Memory in use.
    Mem,
    /// Memory that is not in use.
    MemFree,
    /// Core temperature, degrees Celsius.
    Temp,
    /// Power draw, watts.
    Power,
    /// Its index.
    Gpu,
    /// For how long what is on it has been there.
    Age,
    /// The host's name.
    Host,
    /// A label of its host.
    Label,
    /// The GPU's model.
    Model,
    /// The login name of a process on it or of its lease.
    User,
    /// The command line of a process on it.
    Cmd,
    /// The id or the name of a run on it.
    Run,
    /// What is wrong with it.
    Health,
}

/// What sort of value a field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number, with the units that may be written.
    Number(&'static [(&'static str, Unit)]),
    /// Text.
    Text,
}

/// A unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// None: the field's own.
    Plain,
    /// Of the whole: of the memory, of the power limit.
    Percent,
    /// Bytes.
    Kibi,
    /// Bytes.
    Mebi,
    /// Bytes.
    Gibi,
    /// Bytes.
    Tebi,
    /// Watts.
    Watt,
    /// Watts.
    Kilowatt,
    /// Degrees.
    Celsius,
    /// Seconds.
    Second,
    /// Seconds.
    Minute,
    /// Seconds.
    Hour,
    /// Seconds.
    Day,
}

const PERCENT: &[(&str, Unit)] = &[("", Unit::Plain), ("%", Unit::Percent)];
const BYTES: &[(&str, Unit)] = &[
    ("", Unit::Plain),
    ("%", Unit::Percent),
    ("K", Unit::Kibi),
    ("M", Unit::Mebi),
    ("G", Unit::Gibi),
    ("T", Unit::Tebi),
];
const CELSIUS: &[(&str, Unit)] =
    &[("", Unit::Plain), ("C", Unit::Celsius), ("°", Unit::Celsius), ("°C", Unit::Celsius)];
const WATTS: &[(&str, Unit)] =
    &[("", Unit::Plain), ("W", Unit::Watt), ("kW", Unit::Kilowatt), ("%", Unit::Percent)];
const INDEX: &[(&str, Unit)] = &[("", Unit::Plain)];
const TIME: &[(&str, Unit)] = &[
    ("", Unit::Plain),
    ("s", Unit::Second),
    ("m", Unit::Minute),
    ("min", Unit::Minute),
    ("h", Unit::Hour),
    ("d", Unit::Day),
];

impl Field {
    /// All, as they are listed.
    pub const ALL: [Self; 14] = [
        Self::Util,
        Self::Mem,
        Self::MemFree,
        Self::Temp,
        Self::Power,
        Self::Host,
        Self::Gpu,
        Self::Model,
        Self::User,
        Self::Cmd,
        Self::Run,
        Self::Age,
        Self::Health,
        Self::Label,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Util => "util",
            Self::Mem => "mem",
            Self::MemFree => "mem_free",
            Self::Temp => "temp",
            Self::Power => "power",
            Self::Gpu => "gpu",
            Self::Age => "age",
            Self::Host => "host",
            Self::Label => "label",
            Self::Model => "model",
            Self::User => "user",
            Self::Cmd => "cmd",
            Self::Run => "run",
            Self::Health => "health",
        }
    }

    /// What it is, with the unit, and an example.
    pub fn explain(self) -> (&'static str, &'static str) {
        match self {
            Self::Util => ("utilisation in percent", "util<5"),
            Self::Mem => ("memory in use, in bytes or percent", "mem>80%"),
            Self::MemFree => ("memory not in use, in bytes or percent", "mem_free>40G"),
            Self::Temp => ("temperature in °C", "temp>=80"),
            Self::Power => ("power draw in watts, or in percent of the limit", "power>90%"),
            Self::Gpu => ("index of the GPU on its host", "gpu<4"),
            Self::Age => ("how long what is on the GPU has been there", "age>2h"),
            Self::Host => ("name of the host", "host~gpu-a"),
            Self::Label => ("a label of the host in the hosts file", "label==ib"),
            Self::Model => ("model of the GPU", "model~h200"),
            Self::User => ("login name of a process or lease on the GPU, or `free`", "user==li"),
            Self::Cmd => ("command line of a process on the GPU", "cmd~/train.*\\.py/"),
            Self::Run => ("id or name of a run on the GPU", "run~7QK2"),
            Self::Health => ("what is wrong with the GPU, or `ok`", "health!=ok"),
        }
    }

    /// What sort of value it has.
    pub fn kind(self) -> Kind {
        match self {
            Self::Util => Kind::Number(PERCENT),
            Self::Mem | Self::MemFree => Kind::Number(BYTES),
            Self::Temp => Kind::Number(CELSIUS),
            Self::Power => Kind::Number(WATTS),
            Self::Gpu => Kind::Number(INDEX),
            Self::Age => Kind::Number(TIME),
            Self::Host | Self::Label | Self::Model | Self::User | Self::Cmd | Self::Run | Self::Health => {
                Kind::Text
            }
        }
    }

    /// Reads a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        // `command` is what the column is called.
        let name = if name.eq_ignore_ascii_case("command") { "cmd" } else { name };
        Self::ALL.into_iter().find(|field| field.name().eq_ignore_ascii_case(name))
    }
}

impl Unit {
    /// As it is written behind a number.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Percent => "%",
            Self::Kibi => "K",
            Self::Mebi => "M",
            Self::Gibi => "G",
            Self::Tebi => "T",
            Self::Watt => "W",
            Self::Kilowatt => "kW",
            Self::Celsius => "C",
            Self::Second => "s",
            Self::Minute => "m",
            Self::Hour => "h",
            Self::Day => "d",
        }
    }

    /// How much one of it is, in bytes, watts, degrees, seconds or percent.
    pub(super) fn factor(self) -> f64 {
        match self {
            Self::Plain | Self::Percent | Self::Watt | Self::Celsius | Self::Second => 1.0,
            Self::Kibi => 1024.0,
            Self::Mebi => 1024f64.powi(2),
            Self::Gibi => 1024f64.powi(3),
            Self::Tebi => 1024f64.powi(4),
            Self::Kilowatt => 1000.0,
            Self::Minute => 60.0,
            Self::Hour => 3600.0,
            Self::Day => 86_400.0,
        }
    }
}

/// A state that has a word of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Ranks may be placed on it.
    Free,
    /// Something is on it: a lease, a process, or memory in use.
    Held,
    /// A lease or a process has it, and it has not computed for as long as `held_idle` of the alerts says.
    Idle,
    /// Nothing is wrong with it.
    Ok,
}

impl Word {
    /// All, as they are listed.
    pub const ALL: [Self; 4] = [Self::Free, Self::Held, Self::Idle, Self::Ok];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Idle => "idle",
            Self::Ok => "ok",
        }
    }

    /// What it means.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Free => "no lease, no process, almost no memory in use",
            Self::Held => "a lease, a process, or memory in use",
            Self::Idle => "held, and not computing for as long as the alert `held_idle` takes",
            Self::Ok => "nothing wrong with it",
        }
    }

    /// Reads a word.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.name().eq_ignore_ascii_case(name))
    }
}
