//! The keys about the environment of ranks, which hosts, `[defaults]` and recipes have alike.

use super::error::Problem;
use super::file::{HostTable, RecipeTable, Text};
use crate::domain::environment::EnvironmentPlan;
use crate::launch::environment::{self as rules, EnvironmentFault, Keys};

/// As the keys are called.
const KEYS: Keys =
    Keys { conda: "conda", venv: "venv", modules: "modules", login: "env_from_login", limits: "ulimit" };

/// The keys as they are written.
pub(super) struct Written<'a> {
    conda: Option<&'a Text>,
    venv: Option<&'a Text>,
    modules: &'a [Text],
    login: Option<&'a Text>,
    limits: Option<&'a Text>,
}

impl<'a> From<&'a HostTable> for Written<'a> {
    fn from(table: &'a HostTable) -> Self {
        Self {
            conda: table.conda.as_ref(),
            venv: table.venv.as_ref(),
            modules: table.modules.as_deref().unwrap_or_default(),
            login: table.env_from_login.as_ref(),
            limits: table.ulimit.as_ref(),
        }
    }
}

impl<'a> From<&'a RecipeTable> for Written<'a> {
    fn from(table: &'a RecipeTable) -> Self {
        Self {
            conda: table.conda.as_ref(),
            venv: table.venv.as_ref(),
            modules: table.modules.as_deref().unwrap_or_default(),
            login: table.env_from_login.as_ref(),
            limits: table.ulimit.as_ref(),
        }
    }
}

/// What they ask for; what is wrong with them goes to `fault`.
pub(super) fn of(written: &Written<'_>, fault: &mut dyn FnMut(Problem)) -> EnvironmentPlan {
    let mut plan = EnvironmentPlan::default();
    if let Some(text) = written.conda {
        plan.conda = checked(rules::name(KEYS.conda, text.get_ref()), text, fault);
    }
    if let Some(text) = written.venv {
        plan.venv = checked(rules::name(KEYS.venv, text.get_ref()), text, fault);
    }
    if let (Some(first), Some(last)) = (written.modules.first(), written.modules.last()) {
        let names = written.modules.iter().map(|name| name.get_ref().as_str());
        match rules::modules(KEYS.modules, names) {
            Ok(names) => plan.modules = names,
            Err(error) => fault(problem(first.span().start..last.span().end, &error)),
        }
    }
    if let Some(text) = written.login {
        plan.login = checked(rules::login(KEYS.login, text.get_ref()), text, fault);
    }
    if let Some(text) = written.limits {
        plan.limits =
            checked(rules::read_limits(KEYS.limits, text.get_ref()), text, fault).unwrap_or_default();
    }
    plan
}

fn checked<T>(read: Result<T, EnvironmentFault>, text: &Text, fault: &mut dyn FnMut(Problem)) -> Option<T> {
    read.map_err(|error| fault(problem(text.span(), &error))).ok()
}

/// What is wrong is the title, what to write the remedy.
fn problem(span: std::ops::Range<usize>, error: &EnvironmentFault) -> Problem {
    let text = error.to_string();
    match text.split_once("; write ").or_else(|| text.split_once(": write ")) {
        Some((title, remedy)) => Problem::new(span, title, format!("write {remedy}")),
        None => Problem::new(span, text, "correct it, or leave it out"),
    }
}
