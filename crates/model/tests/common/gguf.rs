//! Tiny GGUF files, made from the stored `safetensors` models.

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

/// What goes into a GGUF file; tests change it before it is written.
pub(crate) struct Gguf {
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: BTreeMap<String, QTensor>,
}

impl Gguf {
    /// A tiny model converted as llama.cpp converts: other names, everything in `f32`, for Llama, but
    /// not for others, query and key rows permuted so that rotated pairs are neighbours, and for Gemma
    /// whole norms.
    pub(crate) fn from_tiny(folder: &Path) -> Self {
        let config: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let architecture = config["model_type"].as_str().unwrap().trim_end_matches("_text");
        let gemma = architecture == "gemma3";
        let size = |key: &str| config[key].as_u64().unwrap() as usize;
        let stated = |key: &str| Value::U32(size(key) as u32);
        let rope = &config["rope_parameters"];
        let rope = if gemma { &rope["full_attention"] } else { rope };
        let theta = rope["rope_theta"].as_f64().unwrap() as f32;
        let mut own = vec![
            ("block_count", stated("num_hidden_layers")),
            ("context_length", stated("max_position_embeddings")),
            ("embedding_length", stated("hidden_size")),
            ("feed_forward_length", stated("intermediate_size")),
            ("attention.head_count", stated("num_attention_heads")),
            ("attention.head_count_kv", stated("num_key_value_heads")),
            ("attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
            ("rope.freq_base", Value::F32(theta)),
        ];
        if gemma {
            let local = &config["rope_parameters"]["sliding_attention"]["rope_theta"];
            own.extend([
                ("rope.scaling.type", Value::String("linear".to_owned())),
                ("rope.scaling.factor", Value::F32(rope["factor"].as_f64().unwrap() as f32)),
                ("rope.freq_base_swa", Value::F32(local.as_f64().unwrap() as f32)),
                ("attention.sliding_window", stated("sliding_window")),
                ("attention.sliding_window_pattern", Value::U32(3)),
            ]);
        }
        if gemma || architecture == "qwen3" {
            own.extend([
                ("attention.key_length", stated("head_dim")),
                ("attention.value_length", stated("head_dim")),
            ]);
        }
        let tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
        let tensors = tensors.into_iter().map(|(name, tensor)| {
            let tensor = tensor.to_dtype(DType::F32).unwrap();
            let tensor = match (architecture, name.split('.').nth(4)) {
                ("llama", Some("q_proj")) => neighbours(&tensor, size("num_attention_heads")),
                ("llama", Some("k_proj")) => neighbours(&tensor, size("num_key_value_heads")),
                // The file cannot say what scores are multiplied by, so a norm in front of them does.
                ("gemma3", Some("q_norm")) => {
                    let scale = size("head_dim") as f64 / size("query_pre_attn_scalar") as f64;
                    ((tensor + 1.0).unwrap() * scale.sqrt()).unwrap()
                }
                ("gemma3", _) if name.contains("norm") => (tensor + 1.0).unwrap(),
                _ => tensor,
            };
            (gguf_name(&name, gemma), QTensor::quantize(&tensor, GgmlDType::F32).unwrap())
        });
        Self { metadata: metadata(architecture, own), tensors: tensors.collect() }
    }

    /// A Llama model of random weights that every block type divides: the matrices in `dtype`.
    pub(crate) fn random(dtype: GgmlDType) -> Self {
        let (hidden, layers) = (256, 2);
        let own = vec![
            ("block_count", Value::U32(layers)),
            ("context_length", Value::U32(256)),
            ("embedding_length", Value::U32(hidden as u32)),
            ("feed_forward_length", Value::U32(512)),
            ("attention.head_count", Value::U32(4)),
            ("attention.head_count_kv", Value::U32(2)),
            ("attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ];
        let mut state = 1u64;
        let mut tensor = |shape: &[usize], dtype| {
            let values: Vec<f32> = (0..shape.iter().product::<usize>())
                .map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.2
                })
                .collect();
            let tensor = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
            // Norms scatter around 1.
            let tensor = if shape.len() == 1 { (tensor + 1.0).unwrap() } else { tensor };
            QTensor::quantize(&tensor, dtype).unwrap()
        };
        let mut tensors = BTreeMap::new();
        tensors.insert("token_embd.weight".to_owned(), tensor(&[64, hidden], dtype));
        tensors.insert("output_norm.weight".to_owned(), tensor(&[hidden], GgmlDType::F32));
        for layer in 0..layers {
            for (part, shape) in [
                ("attn_norm", &[hidden][..]),
                ("attn_q", &[hidden, hidden]),
                ("attn_k", &[hidden / 2, hidden]),
                ("attn_v", &[hidden / 2, hidden]),
                ("attn_output", &[hidden, hidden]),
                ("ffn_norm", &[hidden]),
                ("ffn_gate", &[512, hidden]),
                ("ffn_up", &[512, hidden]),
                ("ffn_down", &[hidden, 512]),
            ] {
                let dtype = if shape.len() == 1 { GgmlDType::F32 } else { dtype };
                tensors.insert(format!("blk.{layer}.{part}.weight"), tensor(shape, dtype));
            }
        }
        Self { metadata: metadata("llama", own), tensors }
    }

    pub(crate) fn set(mut self, key: &str, value: Value) -> Self {
        self.metadata.insert(key.to_owned(), value);
        self
    }

    pub(crate) fn without(mut self, key: &str) -> Self {
        let had = self.metadata.remove(key).is_some() | self.tensors.remove(key).is_some();
        assert!(had, "no {key}");
        self
    }

    pub(crate) fn with_tensor(mut self, name: &str, shape: &[usize], dtype: GgmlDType) -> Self {
        let tensor = Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap();
        self.tensors.insert(name.to_owned(), QTensor::quantize(&tensor, dtype).unwrap());
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let metadata: Vec<_> = self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<_> = self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let mut file = Cursor::new(Vec::new());
        gguf_file::write(&mut file, &metadata, &tensors).unwrap();
        file.into_inner()
    }
}

/// An architecture's own keys under its prefix, and a tokenizer of 64 tokens.
fn metadata(architecture: &str, own: Vec<(&str, Value)>) -> BTreeMap<String, Value> {
    let pre = if architecture == "llama" { "smollm" } else { "qwen2" };
    let tokens: Vec<String> = ["<|begin|>", "<|end|>"]
        .map(str::to_owned)
        .into_iter()
        .chain(('!'..).take(60).map(String::from))
        .chain(["Ġ".to_owned(), "!!".to_owned()])
        .collect();
    let types = (0..64).map(|id| Value::I32(if id < 2 { 3 } else { 1 })).collect();
    let common = [
        ("general.architecture", Value::String(architecture.to_owned())),
        ("tokenizer.ggml.model", Value::String("gpt2".to_owned())),
        ("tokenizer.ggml.pre", Value::String(pre.to_owned())),
        ("tokenizer.ggml.tokens", Value::Array(tokens.into_iter().map(Value::String).collect())),
        ("tokenizer.ggml.token_type", Value::Array(types)),
        ("tokenizer.ggml.merges", Value::Array(vec![Value::String("! !".to_owned())])),
        ("tokenizer.ggml.eos_token_id", Value::U32(1)),
    ];
    let common = common.into_iter().map(|(key, value)| (key.to_owned(), value));
    let own = own.into_iter().map(|(key, value)| (format!("{architecture}.{key}"), value));
    own.chain(common).collect()
}

/// Rows of each head from halves to neighbours.
fn neighbours(weight: &Tensor, heads: usize) -> Tensor {
    let (rows, cols) = weight.dims2().unwrap();
    let halves = weight.reshape((heads, 2, rows / heads / 2, cols)).unwrap();
    halves.transpose(1, 2).unwrap().contiguous().unwrap().reshape((rows, cols)).unwrap()
}

fn gguf_name(name: &str, gemma: bool) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    match parts[..] {
        ["model", "embed_tokens", _] => "token_embd.weight".to_owned(),
        ["model", "norm", _] => "output_norm.weight".to_owned(),
        ["lm_head", _] => "output.weight".to_owned(),
        ["model", "layers", layer, .., part, kind] => {
            let part = match part {
                "input_layernorm" => "attn_norm",
                "post_attention_layernorm" if gemma => "post_attention_norm",
                "post_attention_layernorm" | "pre_feedforward_layernorm" => "ffn_norm",
                "post_feedforward_layernorm" => "post_ffw_norm",
                "q_proj" => "attn_q",
                "q_norm" => "attn_q_norm",
                "k_proj" => "attn_k",
                "k_norm" => "attn_k_norm",
                "v_proj" => "attn_v",
                "o_proj" => "attn_output",
                "gate_proj" => "ffn_gate",
                "up_proj" => "ffn_up",
                "down_proj" => "ffn_down",
                other => panic!("no GGUF name for {other}"),
            };
            format!("blk.{layer}.{part}.{kind}")
        }
        _ => panic!("no GGUF name for {name}"),
    }
}
