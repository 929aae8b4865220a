//! The proxies: how each is configured and started, and what the system tells of its processes.
//!
//! All pass streams on unbuffered, keep connections to the upstream alive and write no access log.
//! nginx and haproxy have as many threads as CPUs that they may run on, the others what they have by
//! themselves.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::client::KEY;

/// Where the load runs and where the proxies run.
#[derive(Clone, Copy)]
pub struct Placement {
    pub load: CpuSet,
    pub proxies: CpuSet,
    all: CpuSet,
}

impl Placement {
    /// The load on the first CPU; the proxies on the second, or on any when they are `free`.
    pub fn of(free: bool) -> anyhow::Result<Self> {
        let all = sched_getaffinity(None)?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
        ensure!(cpus.len() >= 2, "the load and the proxies need a CPU each, there is one");
        let one = |cpu| {
            let mut set = CpuSet::new();
            set.set(cpu);
            set
        };
        let proxies = if free { all } else { one(cpus[1]) };
        Ok(Placement { load: one(cpus[0]), proxies, all })
    }

    /// Runs `action` so that the threads and processes that it starts are on `cpus`.
    pub fn on<T>(self, cpus: CpuSet, action: impl FnOnce() -> T) -> anyhow::Result<T> {
        let before = sched_getaffinity(None)?;
        sched_setaffinity(None, &cpus)?;
        let done = action();
        sched_setaffinity(None, &before)?;
        Ok(done)
    }

    pub fn threads(self) -> u32 {
        self.proxies.count()
    }

    /// Of how many.
    pub fn cpus(self) -> u32 {
        self.all.count()
    }
}

/// What the proxies need to know.
pub struct Setting {
    pub everwarm: PathBuf,
    /// Another build of it.
    pub other: Option<PathBuf>,
    pub litellm: Option<PathBuf>,
    pub upstream: SocketAddr,
    pub folder: PathBuf,
    pub placement: Placement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Everwarm,
    /// Another build.
    Other,
    /// hyper and nothing else.
    Relay,
    Nginx,
    Haproxy,
    Litellm,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Everwarm => "everwarm",
            Peer::Other => "everwarm, the other build",
            Peer::Relay => "a bare relay on hyper",
            Peer::Nginx => "nginx",
            Peer::Haproxy => "haproxy",
            Peer::Litellm => "litellm",
        }
    }

    pub fn start(self, setting: &Setting) -> anyhow::Result<Running> {
        match self {
            Peer::Everwarm => everwarm(setting, &setting.everwarm, &["--device", "none"]),
            Peer::Other => {
                let other = setting.other.as_ref().context("there is no other build")?;
                everwarm(setting, other, &["--device", "none"])
            }
            Peer::Relay => relay(setting),
            Peer::Nginx => nginx(setting),
            Peer::Haproxy => haproxy(setting),
            Peer::Litellm => litellm(setting),
        }
    }
}

/// A started proxy; ended when dropped.
pub struct Running {
    pub address: SocketAddr,
    /// Of everwarm.
    pub admin: Option<SocketAddr>,
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            // nginx's master ends its workers, which a kill would leave behind.
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// `everwarm proxy`, with more options.
pub fn everwarm(setting: &Setting, build: &Path, more: &[&str]) -> anyhow::Result<Running> {
    let mut command = Command::new(build);
    command.args(["proxy", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.args(["--drain", "1 s", "--upstream", &format!("http://{}", setting.upstream)]);
    command.args(more).stdout(Stdio::piped());
    let mut child = spawn(setting, &mut command)?;
    let ready: serde_json::Value =
        serde_json::from_str(&first_line(&mut child)?).context("no ready line")?;
    let address = |key: &str| -> anyhow::Result<SocketAddr> {
        let url = ready[key].as_str().context("the ready line names no address")?;
        Ok(url.trim_start_matches("http://").parse()?)
    };
    Ok(Running { address: address("url")?, admin: Some(address("admin")?), child })
}

fn relay(setting: &Setting) -> anyhow::Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    // It wants a binary to be named, and does not look at it.
    command.arg(&setting.everwarm).args(["--relay-to", &setting.upstream.to_string()]);
    let mut child = spawn(setting, command.stdout(Stdio::piped()))?;
    let line = first_line(&mut child)?;
    Ok(Running { address: line.trim().parse()?, admin: None, child })
}

fn first_line(child: &mut Child) -> anyhow::Result<String> {
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("it has an output")?).read_line(&mut line)?;
    Ok(line)
}

fn nginx(setting: &Setting) -> anyhow::Result<Running> {
    let (folder, own) = (setting.folder.join("nginx"), free_address()?);
    std::fs::create_dir_all(&folder)?;
    let config = format!(
        "daemon off; worker_processes {threads}; pid nginx.pid;\n\
         error_log stderr crit;\n\
         events {{ worker_connections 16384; }}\n\
         http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy;\n\
         fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
         keepalive_requests 10000000; keepalive_timeout 3600s; tcp_nodelay on;\n\
         upstream llm {{ server {upstream}; keepalive 256; keepalive_timeout 4s;\n\
         keepalive_requests 90; }}\n\
         server {{ listen {own} backlog=4096; client_max_body_size 64m;\n\
         location / {{ proxy_pass http://llm; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; proxy_buffering off; proxy_read_timeout 3600s; }} }} }}\n",
        threads = setting.placement.threads(),
        upstream = setting.upstream,
    );
    std::fs::write(folder.join("nginx.conf"), config)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&folder).args(["-c", "nginx.conf", "-e", "stderr"]);
    answering(spawn(setting, &mut command)?, own, Duration::from_secs(10))
}

fn haproxy(setting: &Setting) -> anyhow::Result<Running> {
    let own = free_address()?;
    let config = format!(
        "global\n maxconn 8192\n nbthread {threads}\n\
         defaults\n mode http\n timeout connect 2s\n timeout client 3600s\n timeout server 3600s\n \
         option http-no-delay\n\
         frontend f\n bind {own} backlog 4096\n default_backend llm\n\
         backend llm\n http-reuse safe\n server s1 {upstream} pool-purge-delay 4s\n",
        threads = setting.placement.threads(),
        upstream = setting.upstream,
    );
    let file = setting.folder.join("haproxy.cfg");
    std::fs::write(&file, config)?;
    let mut command = Command::new(program("haproxy"));
    command.arg("-db").arg("-q").arg("-f").arg(&file);
    answering(spawn(setting, &mut command)?, own, Duration::from_secs(10))
}

fn litellm(setting: &Setting) -> anyhow::Result<Running> {
    let (file, own) = (setting.folder.join("litellm.yaml"), free_address()?);
    let config = format!(
        "model_list:\n- model_name: tiny\n  litellm_params:\n    model: openai/tiny\n    \
         api_base: http://{}/v1\n    api_key: none\n",
        setting.upstream
    );
    std::fs::write(&file, config)?;
    let mut command = Command::new(setting.litellm.as_ref().context("litellm is not set up")?);
    command.arg("--config").arg(&file).args(["--host", "127.0.0.1", "--num_workers", "1"]);
    command.args(["--port", &own.port().to_string(), "--telemetry", "False"]);
    command.env("LITELLM_MASTER_KEY", KEY).env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    command.env("LITELLM_LOG", "ERROR").stdout(Stdio::null()).stderr(Stdio::null());
    answering(spawn(setting, &mut command)?, own, Duration::from_secs(120))
}

/// Debian keeps it where not every search path looks.
fn program(name: &str) -> PathBuf {
    let beside = Path::new("/usr/sbin").join(name);
    if beside.exists() { beside } else { PathBuf::from(name) }
}

fn spawn(setting: &Setting, command: &mut Command) -> anyhow::Result<Child> {
    let spawned = setting.placement.on(setting.placement.proxies, || command.spawn())?;
    spawned.with_context(|| format!("can't start {}", command.get_program().to_string_lossy()))
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Waits until somebody listens there.
fn answering(child: Child, address: SocketAddr, patience: Duration) -> anyhow::Result<Running> {
    let mut running = Running { address, admin: None, child };
    let began = Instant::now();
    while began.elapsed() < patience {
        if std::net::TcpStream::connect(address).is_ok() {
            return Ok(running);
        }
        if let Some(status) = running.child.try_wait()? {
            bail!("it ended with {status} before it listened");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("nobody listens on {address} after {patience:?}")
}

impl Running {
    /// CPU time of all its threads so far. Unit: ns. Source: /proc/PID/task/TID/schedstat, which
    /// counts what the clock ticks of utime and stime sample.
    pub fn cpu_ns(&self) -> u64 {
        let tasks = self
            .processes()
            .into_iter()
            .filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
        let stats = tasks.flatten().flatten().map(|task| task.path().join("schedstat"));
        let first = |text: String| text.split(' ').next()?.parse::<u64>().ok();
        stats.filter_map(|path| first(std::fs::read_to_string(path).ok()?)).sum()
    }

    /// Resident memory of all its processes. Unit: B.
    pub fn resident(&self) -> u64 {
        let of = |pid: u32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        };
        self.processes().into_iter().filter_map(of).sum::<u64>() * 1024
    }

    /// It and its children.
    fn processes(&self) -> Vec<u32> {
        let mut found = vec![self.child.id()];
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut pids: Vec<u32> = pids.collect();
        pids.sort_unstable();
        for pid in pids {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            let parent = after_name.split_whitespace().nth(1).and_then(|p| p.parse().ok());
            if parent.is_some_and(|parent| found.contains(&parent)) {
                found.push(pid);
            }
        }
        found
    }
}
