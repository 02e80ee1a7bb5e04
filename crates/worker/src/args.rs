//! Flags of a process that runs a model.

use std::time::Duration;

use clap::Args;
use foretoken_model::{Device, LoadOptions, Precision};
use foretoken_runtime::{Limits, RuntimeConfig};
use foretoken_transport::parse_duration;

/// How a model is loaded and what it may use. Flatten it into a worker's arguments.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Longest text, prompt included; the model's own limit unless lowered
    #[arg(long, env = "FORETOKEN_MAX_CONTEXT", value_name = "TOKENS")]
    pub max_context: Option<usize>,

    /// Threads of a pass [default: all processors]
    #[arg(long, env = "FORETOKEN_THREADS", value_name = "N")]
    pub threads: Option<usize>,

    /// Where the model runs: cpu, cuda, cuda:N, metal or metal:N; GPUs need a build with the feature of their name
    #[arg(long, env = "FORETOKEN_DEVICE", value_name = "DEVICE", default_value_t = Device::Cpu)]
    pub device: Device,

    /// Positions of the KV cache, for all sessions together [default: eight full contexts, or what fits the memory]
    #[arg(long, env = "FORETOKEN_KV_TOKENS", value_name = "TOKENS")]
    pub kv_tokens: Option<usize>,

    /// How keys and values are kept: f32, or f16 in half the memory, with the text's distribution a little off the f32 one's
    #[arg(long, env = "FORETOKEN_KV_TYPE", value_name = "TYPE", default_value_t = Precision::F32)]
    pub kv_type: Precision,

    /// MiB that weights and KV cache may take together, of the device's own memory where it has some [default: what is available at start]
    #[arg(long, env = "FORETOKEN_MEMORY_LIMIT", value_name = "MIB")]
    pub memory_limit: Option<u64>,

    /// Sessions held at once, those whose stream broke a moment ago included
    #[arg(long, env = "FORETOKEN_MAX_SESSIONS", value_name = "N", default_value_t = 64)]
    pub max_sessions: usize,

    /// Tokens of one block, at most
    #[arg(long, env = "FORETOKEN_MAX_DRAFT_LEN", value_name = "TOKENS", default_value_t = 64)]
    pub max_draft_len: usize,

    /// Frames and opens that may wait for the model; more are refused with a retry hint
    #[arg(long, env = "FORETOKEN_QUEUE", value_name = "N", default_value_t = 1024)]
    pub queue: usize,

    /// Rows of one pass, over all sessions
    #[arg(long, env = "FORETOKEN_ROW_BUDGET", value_name = "ROWS", default_value_t = 512)]
    pub row_budget: usize,

    /// Rows of one prompt in a pass that other sessions share
    #[arg(long, env = "FORETOKEN_PREFILL_CHUNK", value_name = "ROWS", default_value_t = 128)]
    pub prefill_chunk: usize,

    /// How long a session outlives its broken stream (500ms, 10s, 1m)
    #[arg(long, env = "FORETOKEN_SESSION_GRACE", value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub session_grace: Duration,
}

impl ModelArgs {
    pub(crate) fn load_options(&self) -> LoadOptions {
        LoadOptions {
            max_context: self.max_context,
            threads: self.threads,
            device: self.device,
            kv_type: self.kv_type,
            ..LoadOptions::default()
        }
    }

    fn memory_available(&self) -> Option<u64> {
        match self.device {
            Device::Cuda(_) => self.device.free_memory(),
            Device::Cpu | Device::Metal(_) => memory_available(),
        }
    }

    pub(crate) fn runtime_config(&self) -> RuntimeConfig {
        RuntimeConfig {
            limits: Limits {
                max_draft_len: self.max_draft_len,
                max_sessions: self.max_sessions,
                ..Limits::default()
            },
            kv_tokens: self.kv_tokens,
            memory_limit: self.memory_limit.map(|mib| mib << 20).or_else(|| self.memory_available()),
            queue: self.queue,
            row_budget: self.row_budget,
            prefill_chunk: self.prefill_chunk,
            grace: self.session_grace,
            ..RuntimeConfig::default()
        }
    }
}

/// Bytes the system could give, where it says so.
fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Words {
        #[command(flatten)]
        model: ModelArgs,
    }

    #[test]
    fn the_device_is_the_cpu_unless_named() {
        let device = |words: &[&str]| {
            let words = Words::try_parse_from(std::iter::once(&"worker").chain(words));
            words.map(|words| words.model.load_options().device)
        };
        assert_eq!(device(&["--device", "cpu"]).unwrap(), Device::Cpu);
        assert_eq!(device(&["--device", "cuda:1"]).unwrap(), Device::Cuda(1));
        assert_eq!(device(&["--device", "metal"]).unwrap(), Device::Metal(0));
        let refused = device(&["--device", "gpu"]).unwrap_err().to_string();
        assert!(refused.contains("cuda:N"), "{refused}");
    }
}
