"""Speech, audio and byte models: encoders, decoders, codecs; one rope each."""

from __future__ import annotations

from ..family import Condition, Family, LayerRule, Window, upstream
from .decoders import FROM_LAYER, SWITCHED
from .rules import clvp_lanes, speech_encoder

BEFORE_PROJECTION = "hidden states are rotated before the query and key projections"
_TRANSFORMER_XL = Condition(
    "position_embeddings_type", ("rotary",), "relative", "relative ones of Transformer-XL"
)
_RELATIVE_KEYS = Condition(
    "position_embeddings_type", ("rotary",), "relative_key", "relative position keys"
)
_CONFORMER = {"theta": ("rotary_embedding_base",), "stated_length": ()}
_SEAMLESS = {
    "heads": ("speech_encoder_attention_heads",),
    "layers": ("speech_encoder_layers",),
    "theta": ("rotary_embedding_base",),
}
_MOONSHINE = {
    "heads": ("decoder_num_attention_heads",),
    "kv_heads": ("decoder_num_key_value_heads",),
    "layers": ("decoder_num_hidden_layers",),
}
_LLAMA3_HIGGS = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "original_max_position_embeddings": 1024,
    "low_freq_factor": 0.125,
    "high_freq_factor": 0.5,
}

# fmt: off
ROWS: dict[str, Family] = {
    "blt_local_encoder": upstream(
        "BltLocalEncoderConfig", 1024, 16, None, 1, None, 24576, theta=5e5, window=Window(),
        pairing="adjacent",
    ),
    "blt_local_decoder": upstream(
        "BltLocalDecoderConfig", 1024, 16, None, 9, None, 24576, theta=5e5, window=Window(),
        pairing="adjacent",
    ),
    "blt_global_transformer": upstream(
        "BltGlobalTransformerConfig", 2048, 16, None, 25, None, 4096, theta=5e5, window=Window(),
        pairing="adjacent",
    ),
    "blt_patcher": upstream(
        "BltPatcherConfig", 768, 12, None, 14, None, 8192, window=Window(512),
        pairing="adjacent",
    ),
    "csm": upstream("CsmConfig", 2048, 32, 8, 16, None, 2048, theta=5e5),
    "csm_depth_decoder_model": upstream(
        "CsmDepthDecoderConfig", 1024, 8, 2, 4, None, 33, theta=5e5,
    ),
    "dia_encoder": upstream("DiaEncoderConfig", 1024, 16, 16, 12, 128, 1024),
    "dia_decoder": upstream("DiaDecoderConfig", 2048, 16, 4, 18, 128, 3072),
    "gradium_phonon_tts": upstream("GradiumPhononTTSConfig", 768, 12, None, 6, 64, 8192),
    "kyutai_speech_to_text": upstream(
        "KyutaiSpeechToTextConfig", 2048, 32, None, 48, None, 750, window=Window(375),
    ),
    "lasr_encoder": upstream("LasrEncoderConfig", 512, 8, None, 17, None, 10000),
    "mimi": upstream("MimiConfig", 512, 8, 8, 8, None, 8000, window=Window(250)),
    "mimi_encoder": upstream("MimiEncoderConfig", 512, 8, 8, 8, None, 8000, window=Window(250)),
    "mimi_decoder": upstream("MimiDecoderConfig", 512, 8, 8, 8, None, 8000, window=Window(250)),
    "moshi": upstream("MoshiConfig", 4096, 32, None, 32, None, 3000, window=Window(3000)),
    "neucodec": upstream("NeuCodecConfig", 1024, 16, 16, 12, 64, 4096),
    "xcodec2": upstream("Xcodec2Config", 1024, 16, 16, 12, 64, 4096),
    "pocket_tts": upstream("PocketTTSConfig", 1024, 16, None, 6, 64, 8192),
    "pocket_tts_audio_tokenizer": upstream(
        "PocketTTSAudioTokenizerConfig", 512, 8, 8, 2, None, 8000, window=Window(250),
    ),
    "pocket_tts_audio_tokenizer_encoder": upstream(
        "PocketTTSAudioTokenizerEncoderConfig", 512, 8, 8, 2, None, 8000, window=Window(250),
    ),
    "pocket_tts_audio_tokenizer_decoder": upstream(
        "PocketTTSAudioTokenizerDecoderConfig", 512, 8, 8, 2, None, 8000, window=Window(250),
    ),
    "voxtral_realtime_text": upstream(
        "VoxtralRealtimeTextConfig", 4096, 32, 8, 32, None, 131072, window=Window(4096),
    ),
    "voxtral_realtime_encoder": upstream(
        "VoxtralRealtimeEncoderConfig", 1280, 32, None, 32, 64, 1500, window=Window(750),
    ),
    "glmasr_encoder": upstream(
        "GlmAsrEncoderConfig", 1280, 20, None, 32, None, 1500, partial=0.5,
    ),
    "dots3_note_audio_encoder": upstream(
        "Dots3NoteAudioConfig", 1280, 20, None, 32, 64, 6000, partial=0.5,
    ),
    "nemotron3_5_transcribe_asr_audio": upstream(
        "Nemotron3_5TranscribeAsrAudioConfig", 1280, 10, None, 32, None, 5000, partial=0.5,
    ),
    "nemotron3_5_transcribe_word_timestamp": upstream(
        "Nemotron3_5TranscribeWordTimestampConfig", 1280, 16, None, 2, None, 5000, partial=0.5,
    ),
    "nemotron3_diarization_audio": upstream(
        "Nemotron3DiarizationAudioConfig", 512, 8, None, 31, None, 5000, partial=1.0,
    ),
    "qwen3_omni_moe_talker_code_predictor": upstream(
        "Qwen3OmniMoeTalkerCodePredictorConfig", 1024, 16, 8, 5, 128, 32768, window=Window(),
        layers=LayerRule("period", 1),
    ),
    "timesfm2_5": upstream("TimesFm2_5Config", 1280, 16, 16, 20, 80, 16384),
    "higgs_audio_v2": upstream(
        "HiggsAudioV2Config", 3072, 24, 8, 28, 128, 2048, theta=5e5, block=_LLAMA3_HIGGS,
    ),
    "moonshine": upstream(
        "MoonshineConfig", 288, 8, 8, 6, None, 512, partial=0.9, pairing="adjacent",
        spellings=_MOONSHINE,
    ),
    "moonshine_streaming": upstream(
        "MoonshineStreamingConfig", 320, 8, None, 6, None, 4096, partial=0.8, pairing="adjacent",
        remarks=("the encoder has no positions but its windows",),
    ),
    "pe_audio_encoder": upstream(
        "PeAudioEncoderConfig", 1792, 14, None, 6, 128, 10000, theta=20000.0, pairing="adjacent",
    ),
    "pe_audio_video_encoder": upstream(
        "PeAudioVideoEncoderConfig", 1792, 14, None, 6, 128, 10000, theta=20000.0,
        pairing="adjacent",
    ),
    "pe_video_encoder": upstream(
        "PeVideoEncoderConfig", 1792, 14, None, 6, 128, 10000, theta=20000.0, pairing="adjacent",
    ),
    "qwen2_5_omni_dit": upstream(
        "Qwen2_5OmniDiTConfig", 1024, 16, None, 22, 64, 32768,
        remarks=("the DiT rotates only the first of its heads",),
    ),
    "qwen3_omni_moe_code2wav": upstream(
        "Qwen3OmniMoeCode2WavConfig", 1024, 16, 16, 8, None, 8000, window=Window(72),
    ),
    "deepseek_ocr2_encoder": upstream(
        "DeepseekOcr2VisionEncoderConfig", 4096, 32, 32, 32, None, 32768, window=SWITCHED,
        layers=FROM_LAYER,
    ),
    "wav2vec2-bert": upstream(
        "Wav2Vec2BertConfig", 1024, 16, None, 24, None, None,
        condition=_RELATIVE_KEYS,
        spellings=_CONFORMER, remarks=(BEFORE_PROJECTION,),
    ),
    "wav2vec2-conformer": upstream(
        "Wav2Vec2ConformerConfig", 768, 12, None, 12, None, None,
        condition=_TRANSFORMER_XL,
        spellings=_CONFORMER, remarks=(BEFORE_PROJECTION,),
    ),
    "seamless_m4t": upstream(
        "SeamlessM4TConfig", 1024, 16, None, 24, None, None,
        condition=_TRANSFORMER_XL,
        spellings=_SEAMLESS, prepare=speech_encoder, remarks=(BEFORE_PROJECTION,),
    ),
    "clvp_encoder": upstream(
        "ClvpEncoderConfig", 768, 12, None, 20, None, None,
        condition=Condition("use_rotary_embedding", (True,), True, "absolute"),
        prepare=clvp_lanes, partial=1.0,
        spellings={"rotary_dim": ("projection_dim // (2 * heads)",)}, only_default=True,
        remarks=("values are rotated as well as queries and keys",),
    ),
}
# fmt: on
