//! What is read of `config.json`, what stands for what it leaves out, and what is refused by name.

use super::*;
use serde_json::json;

fn with(changes: &Value) -> Result<ModelConfig, LoadError> {
    let mut config = json!({
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 128,
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    serde_json::from_value::<HfConfig>(config).unwrap().into_config()
}

#[test]
fn absent_fields_have_the_family_defaults() {
    let config = with(&json!({})).unwrap();
    assert_eq!(config.heads, Heads { query: 4, key_value: 4, dim: 16 });
    assert_eq!((config.rope_theta, config.rope_scaling), (1e4, Scaling::None));
}

#[test]
fn families_switch_biases_head_norms_and_the_head_size() {
    let switches = |model_type: &str| {
        let config = with(&json!({"model_type": model_type})).unwrap();
        (config.biases, config.qk_norm, config.heads.dim)
    };
    assert_eq!(switches("mistral"), (false, false, 16));
    assert_eq!(switches("qwen2"), (true, false, 16));
    assert_eq!(switches("qwen3"), (false, true, 128));
}

#[test]
fn gemma_has_layers_of_two_kinds() {
    let gemma = |changes: Value| {
        let mut all = json!({"model_type": "gemma3_text", "sliding_window": 512, "num_hidden_layers": 3});
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        with(&all)
    };
    let silent = gemma(json!({})).unwrap();
    let local = |full_every| Some(Local { window: 512, rope_theta: 1e4, full_every });
    assert_eq!((silent.local, silent.rope_theta, silent.heads.dim), (local(6), 1e6, 256));
    assert_eq!((silent.attention_scale, silent.embedding_scale), (1.0 / 16.0, 8.0));
    let old = json!({"sliding_window_pattern": 2, "rope_local_base_freq": 1e4, "query_pre_attn_scalar": 4});
    let old = gemma(old).unwrap();
    assert_eq!((old.local, old.attention_scale), (local(2), 0.5));
    let kinds = |kinds: [&str; 3]| gemma(json!({"layer_types": kinds}));
    let (full, sliding) = ("full_attention", "sliding_attention");
    assert_eq!(kinds([sliding, full, sliding]).unwrap().local, local(2));
    assert_eq!(kinds([sliding; 3]).unwrap().local, local(0));
    assert!(kinds([full, sliding, full]).unwrap_err().to_string().contains("one distance"));
    for (changes, name) in [
        (json!({"sliding_window": null}), "sliding_window is missing"),
        (json!({"layer_types": ["full_attention"]}), "1 entries for 3 layers"),
        (json!({"final_logit_softcapping": 30.0}), "final_logit_softcapping"),
        (json!({"use_bidirectional_attention": true}), "use_bidirectional_attention"),
        (json!({"hidden_activation": "silu"}), "hidden_activation"),
        (json!({"rope_parameters": {"sliding_attention": {"rope_type": "yarn"}}}), "sliding_attention"),
    ] {
        let error = gemma(changes).unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn a_window_that_is_off_is_none() {
    let window = |model_type: &str, on: Option<bool>| {
        let config = json!({
            "model_type": model_type, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 128, "sliding_window": 32,
            "use_sliding_window": on, "max_window_layers": 1,
        });
        serde_json::from_value::<HfConfig>(config).unwrap().sliding_window()
    };
    assert_eq!(window("qwen2", Some(false)), None);
    assert_eq!(window("qwen3", None), None);
    assert_eq!(window("qwen2", Some(true)), Some(32));
    assert_eq!(window("mistral", None), Some(32));
    assert_eq!(window("mistral", Some(false)), None);
}

#[test]
fn both_spellings_of_rope_are_read() {
    let old = json!({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}});
    let new = json!({"rope_parameters": {"rope_type": "linear", "rope_theta": 500000, "factor": 2}});
    let both =
        json!({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0}});
    for changes in [old, new, both] {
        let config = with(&changes).unwrap();
        assert_eq!((config.rope_theta, config.rope_scaling), (5e5, Scaling::Linear { factor: 2.0 }));
    }
}

#[test]
fn what_would_be_wrong_is_refused_by_name() {
    for (changes, name) in [
        (json!({"model_type": "qwen3_moe"}), "qwen3_moe"),
        (json!({"model_type": "qwen3", "attention_bias": true}), "attention_bias"),
        (json!({"model_type": "qwen2", "num_experts": 60}), "num_experts"),
        (json!({"model_type": "qwen2", "dual_chunk_attention_config": {"chunk_size": 8}}), "dual_chunk"),
        (json!({"layer_types": ["full_attention", "linear_attention"]}), "linear_attention"),
        (json!({"model_type": "qwen2", "layer_types": ["sliding_attention"]}), "sliding_attention"),
        (json!({"model_type": "mamba"}), "mamba"),
        (json!({"hidden_act": "gelu"}), "gelu"),
        (json!({"attention_bias": true}), "attention_bias"),
        (json!({"num_local_experts": 8}), "num_local_experts"),
        (json!({"quantization_config": {"bits": 4}}), "quantization_config"),
        (json!({"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}), "longrope"),
        (json!({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}), "dynamic"),
        (json!({"rope_scaling": {"rope_type": "yarn"}}), "rope_scaling.factor"),
        (json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": false}}), "truncate"),
        (json!({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}), "low_freq_factor"),
        (json!({"num_attention_heads": 5}), "num_attention_heads"),
        (json!({"num_key_value_heads": 3}), "key-value heads"),
    ] {
        let error = with(&changes).unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
    }
}
