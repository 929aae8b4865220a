//! `everwarm hold`.

use crate::output::print;
use anyhow::Context;
use everwarm_hold::{Config, Shape, State, Status, Warmer, on_parent_exit, virtually};
use everwarm_units::{Joules, Span};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Keeps a GPU warm for a time, or while a command runs.
///
/// A single small kernel runs again and again (0.6 W on an M2), so that the clock stays up and the
/// next request is not served at a third of it. The hold ends with the time, the command, the
/// energy cap, a signal, or this process, whichever comes first. It rests while the machine must
/// save power: on battery, in low power mode, in heat, or while its display sleeps.
///
/// `everwarm devices` says what can be held. Whether there is anything to gain is another question:
/// an NVIDIA GPU with a CUDA context open keeps its clock by itself (docs/devices/h200.md).
///
/// Examples: `everwarm hold --for 10m`, `everwarm hold -- python agent.py`. With a command the exit
/// status is the command's, and signals are passed on to it; without one it is 1 if the device is gone
/// at the end.
#[derive(clap::Args)]
pub struct Args {
    /// The GPU (`everwarm devices` lists them). Default: the first real one, else sim:m2, which
    /// lives in virtual time: its hold is over at once and shows what a real one would use.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// How long: 10m, 30s, 1h, `90 s`. Default: until the command, or this one, ends.
    #[arg(long = "for", value_name = "SPAN", value_parser = span)]
    span: Option<Span>,
    /// Watt-hours it may use.
    #[arg(long, value_name = "WH", default_value = "2", value_parser = watt_hours)]
    cap: Joules,
    #[command(flatten)]
    power: crate::power::PowerArgs,
    /// Print a summary as JSON at the end, and no progress.
    #[arg(long)]
    json: bool,
    /// The command to run meanwhile.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// `10m` as people write it, besides the forms of every other span.
pub fn span(text: &str) -> Result<Span, String> {
    let spelled = match text.trim().strip_suffix('m') {
        Some(minutes) => format!("{minutes} min"),
        None => text.to_owned(),
    };
    spelled.parse::<Span>().map_err(|e| e.to_string().replace(&spelled, text))
}

/// A bare number is watt-hours; `500 J` is understood, too.
pub fn watt_hours(text: &str) -> Result<Joules, String> {
    let bare = text.trim().parse::<f64>().is_ok();
    let spelled = if bare { format!("{} Wh", text.trim()) } else { text.to_owned() };
    let energy: Joules = spelled.parse().map_err(|e: everwarm_units::ParseError| e.to_string())?;
    if energy > Joules::ZERO { Ok(energy) } else { Err("the cap must be more than 0".to_owned()) }
}

/// What ended the hold, or happened to it.
enum News {
    Signal { number: i32, from_terminal: bool },
    ParentGone,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let device = args.device.clone().unwrap_or_else(everwarm_gpu::default_device);
    let is_virtual = match is_virtual(&device) {
        // No device is no reason not to run a command.
        Err(_) if !args.command.is_empty() => false,
        found => found?,
    };
    if args.command.is_empty() && is_virtual {
        return hold_virtually(&args, &device);
    }
    let (news, inbox) = channel();
    // Before any thread is started that could take a signal first.
    watch_signals(news.clone())?;
    on_parent_exit(move || drop(news.send(News::ParentGone)));
    let warmer = Warmer::spawn(config(&args, &device))?;
    let began = Instant::now();
    let hold = Hold { args: &args, device: &device, is_virtual, warmer: Some(warmer), began };
    if args.command.is_empty() { hold.alone(&inbox) } else { hold.beside(&inbox) }
}

fn config(args: &Args, device: &str) -> Config {
    Config {
        device: Some(device.to_owned()),
        policy: "always".to_owned(),
        governor: governor(args),
        shape: Shape::default(),
        surroundings: args.power.surroundings(Some(device)),
    }
}

fn governor(args: &Args) -> everwarm_governor::Config {
    everwarm_governor::Config { cap: args.cap, ..everwarm_governor::Config::default() }
}

fn is_virtual(device: &str) -> anyhow::Result<bool> {
    Ok(everwarm_gpu::open(device)?.device().virtual_time)
}

fn hold_virtually(args: &Args, device: &str) -> anyhow::Result<ExitCode> {
    let span = args.span.with_context(|| {
        format!(
            "{device} lives in virtual time inside this process, so that a hold without an end \
             would warm nothing; give --for, or a command, or a shared device (sim:SOCKET of \
             `everwarm sim-server`)"
        )
    })?;
    let summary = virtually(device, span, governor(args), Shape::default())?;
    let energy = summary.energy.map(|e| e.as_j());
    if args.json {
        let ended_by = summary.ended_by.map(|r| r.name());
        let json = serde_json::json!({
            "device": device, "virtual_time": true, "held_s": summary.held.as_secs(),
            "energy_j": energy, "buffers": summary.buffers, "ended_by": ended_by,
        });
        print(&format!("{json}\n"))?;
    } else {
        let power =
            summary.energy.map_or(String::new(), |e| format!(", {e:.2} ({:.2})", e / summary.held));
        let early = summary.ended_by.map_or(String::new(), |r| format!("ended early: {r}\n"));
        print(&format!(
            "held {device} for {:.1} of virtual time{power}\n{early}\
             {VIRTUAL}\n",
            summary.held
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a hold of a device in virtual time did.
const VIRTUAL: &str = "nothing real was warmed: the device is simulated in this process alone";

struct Hold<'a> {
    args: &'a Args,
    device: &'a str,
    is_virtual: bool,
    warmer: Option<Warmer>,
    began: Instant,
}

impl Hold<'_> {
    /// Without a command: until the time is up, a signal comes or the parent is gone.
    fn alone(self, inbox: &Receiver<News>) -> anyhow::Result<ExitCode> {
        let end = self.args.span.map(|span| self.began + Duration::from(span));
        let mut warned = false;
        let code = loop {
            match inbox.recv_timeout(self.pause(end)) {
                Ok(News::Signal { number, .. }) if number != SIGCHLD => break 128 + number,
                Ok(News::ParentGone) => break 128 + SIGHUP,
                _ => {}
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                break 0;
            }
            warned = warned || self.warn();
            self.progress();
        };
        let gone = code == 0 && self.status().is_some_and(|s| s.warm.state == State::Unavailable);
        self.finish();
        Ok(if gone { ExitCode::FAILURE } else { ExitCode::from(code as u8) })
    }

    /// With a command: until it ends; the hold itself may end before.
    fn beside(mut self, inbox: &Receiver<News>) -> anyhow::Result<ExitCode> {
        let (program, arguments) = self.args.command.split_first().context("no command")?;
        let started = std::process::Command::new(program).args(arguments).spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                eprintln!("everwarm: can't run {}: {error}", program.to_string_lossy());
                let missing = error.kind() == std::io::ErrorKind::NotFound;
                return Ok(ExitCode::from(if missing { 127 } else { 126 }));
            }
        };
        let mut end = self.args.span.map(|span| self.began + Duration::from(span));
        let mut warned = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            match inbox.recv_timeout(self.pause(end).min(Duration::from_millis(500))) {
                Ok(News::Signal { number, from_terminal }) => {
                    pass_on(&child, number, from_terminal)
                }
                Ok(News::ParentGone) => self.end(),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                end = None;
                self.end();
            }
            warned = warned || self.warn();
        };
        self.finish();
        Ok(exit_code(status))
    }

    fn pause(&self, end: Option<Instant>) -> Duration {
        let left = end.map_or(Duration::MAX, |e| e.saturating_duration_since(Instant::now()));
        left.min(Duration::from_secs(1))
    }

    /// Says once that nothing is warmed, if that is so after a while; a command is run all the same.
    fn warn(&self) -> bool {
        if self.began.elapsed() <= Duration::from_millis(400) {
            return false;
        }
        let Some(status) = self.status() else { return true };
        let idle = status.warm.state != State::Holding;
        if idle {
            eprintln!("everwarm: not holding {}: {}", self.device, status.warm.why);
        }
        idle
    }

    fn status(&self) -> Option<Status> {
        self.warmer.as_ref().map(|warmer| warmer.handle().status())
    }

    fn progress(&self) {
        let mut out = std::io::stderr();
        if self.args.json || !out.is_terminal() {
            return;
        }
        let Some(status) = self.status() else { return };
        let state = match status.warm.state {
            State::Holding => "holding".to_owned(),
            _ => status.warm.why,
        };
        let (spent, elapsed) = (Joules::j(status.energy.used_24h_j), self.began.elapsed());
        let _ = write!(
            out,
            "\r\x1b[K{}: {state}, {:.0} s, {spent:.1} of {:.1}",
            self.device,
            elapsed.as_secs_f64(),
            self.args.cap,
        );
        let _ = out.flush();
    }

    /// Ends the hold; a command may go on.
    fn end(&mut self) {
        if let Some(warmer) = self.warmer.take() {
            let handle = warmer.handle();
            drop(warmer);
            self.summary(&handle.status());
        }
    }

    fn finish(mut self) {
        self.end();
    }

    fn summary(&self, status: &Status) {
        let c = status.counters;
        let held = Span::ms(c.hold_ms);
        let energy = Joules::j(status.energy.total_j);
        let never = c.holds == 0;
        let gone = (status.warm.state == State::Unavailable).then_some(&status.warm.why);
        if self.args.json {
            let json = serde_json::json!({
                "device": self.device, "virtual_time": false, "held_s": held.as_secs(),
                "energy_j": energy.as_j(), "energy_measured": status.energy.measured,
                "buffers": c.hold_buffers, "failures": c.failures,
                "why_not": never.then_some(&status.warm.why), "lost": gone,
            });
            // The exit status is the command's or the signal's, whoever still listens here.
            let _ = print(&format!("{json}\n"));
            return;
        }
        let mut out = std::io::stderr();
        let clear = if out.is_terminal() && self.args.command.is_empty() { "\r\x1b[K" } else { "" };
        let text = if never {
            format!("{} was not held: {}", self.device, status.warm.why)
        } else {
            let how = match (self.is_virtual, status.energy.measured) {
                (true, _) => VIRTUAL,
                (false, true) => "by the device's energy counter",
                (false, false) => "an estimate, where the device has no energy counter or was gone",
            };
            let lost = gone.map_or(String::new(), |why| format!("; at the end it was gone: {why}"));
            format!("held {} for {held:.1}, {energy:.2} ({how}){lost}", self.device)
        };
        let _ = writeln!(out, "{clear}everwarm: {text}");
    }
}

/// A terminal sends its signals to the whole group: the command has them already.
fn pass_on(child: &Child, number: i32, from_terminal: bool) {
    if number == SIGCHLD || from_terminal {
        return;
    }
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, rustix::process::Signal::from_named_raw(number)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|s| 128 + s)).unwrap_or(1);
    ExitCode::from(code as u8)
}

fn watch_signals(news: Sender<News>) -> anyhow::Result<()> {
    let numbers = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD];
    let mut signals = SignalsInfo::<WithOrigin>::new(numbers)?;
    let watch = move || {
        for info in &mut signals {
            let from_terminal = info.process.is_none() && matches!(info.signal, SIGINT | SIGQUIT);
            let told = news.send(News::Signal { number: info.signal, from_terminal });
            if told.is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
    Ok(())
}
