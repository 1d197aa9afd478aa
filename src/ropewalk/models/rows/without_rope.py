"""Types of model that have no rope, and what they have instead.

Every ``model_type`` of transformers 5.24.0 is in this table, in the family table, or a
composite whose main part is (`models.composites`); a test holds that. The kinds were read from
the code that each config class builds. The last groups hold types that come with their own code.
"""

from __future__ import annotations

# fmt: off
_KINDS: dict[str, str] = {
    "learned absolute positions": """
        aimv2 aimv2_text_model albert align align_text_model altclip altclip_text_model
        audioflamingo3_encoder bark bart bert bert-generation big_bird bigbird_pegasus biogpt
        blenderbot blenderbot-small blip blip-2 blip_text_model bridgetower bridgetower_text_model
        camembert canine chinese_clip chinese_clip_text_model clap clap_text_model clip
        clip_text_model clipseg clipseg_text_model clvp_decoder cohere_asr convbert data2vec-text
        decision_transformer distilbert dpr electra ernie flaubert flava flava_text_model
        florence2 fnet git gpt-sw3 gpt2 gpt_bigcode gpt_neo groupvit groupvit_text_model ibert
        imagegpt instructblip instructblip_qformer instructblipvideo instructblipvideo_qformer
        layoutlm led lilt longformer luke lxmert markuplm mbart megatron-bert metaclip_2
        metaclip_2_text_model mobilebert moss_transcribe_diarize_audio mra mvp nougat
        nystromformer openai-gpt opt owlv2 owlv2_text_model owlvit owlvit_text_model perceiver
        plbart pp_formulanet pp_formulanet_text qwen2_audio_encoder reformer rembert roberta
        roberta-prelayernorm roc_bert sam3_lite_text sam3_lite_text_text_model siglip siglip2
        siglip2_text_model siglip_text_model splinter squeezebert tapas trocr tvp vilt
        vision-text-dual-encoder visual_bert voxtral_encoder whisper xclip xclip_text_model xlm
        xlm-roberta xlm-roberta-xl xmod yoso
    """,
    "learned absolute positions of image patches": """
        aimv2_vision_model altclip_vision_model audio-spectrogram-transformer blip_2_vision_model
        blip_vision_model bridgetower_vision_model chinese_clip_vision_model clip_vision_model
        clipseg_vision_model cosmos3_edge_vision deit depth_anything depth_pro dinov2
        dinov2_with_registers dpt eomt flava_image_model gemma4_unified_vision git_vision_model
        glm_image_vision granite_docling_vision groupvit_vision_model hiera hunyuan_vl_vision
        hy_v4_vl_vision idefics2_vision idefics3_vision idefics_vision ijepa
        instructblip_vision_model instructblipvideo_vision_model internvl_vision
        janus_vision_model kosmos_2_5_vision_model kosmos_2_vision_model lw_detr_vit
        metaclip_2_vision_model mgp-str minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision
        mllama_vision_model molmo2_vision ovis2_vision owlv2_vision_model owlvit_vision_model
        phi4_multimodal_vision pix2struct_vision_model pixio prompt_depth_anything pvt
        qianfan_ocr_vision radio rf_detr_dinov2 sam2_hiera_det_model siglip2_vision_model
        siglip_vision_model smolvlm_vision timesformer tipsv2 tipsv2_dpt tipsv2_vision_model
        unlimited_ocr_vision unlimited_ocr_vision_encoder videomt videoprism
        videoprism_vision_model vit vit_msn vitpose vitpose_backbone vivit xclip_vision_model
        yolos
    """,
    "sinusoidal absolute positions": """
        autoformer canary canary_decoder ctrl fsmt fun_asr_nano_encoder informer kosmos-2
        kosmos-2.5 kosmos_2_5_text_model kosmos_2_text_model m2m_100 marian musicgen
        musicgen_decoder musicgen_melody musicgen_melody_decoder nllb-moe patchtsmixer patchtst
        pegasus pegasus_x qwen2_5_omni_audio_encoder qwen3_asr_encoder
        qwen3_omni_moe_audio_encoder speech_to_text time_series_transformer timesfm
        tipsv2_text_model videomae videoprism_text_model vit_mae xglm
    """,
    "sinusoidal or learned positions of image features": """
        conditional_detr d_fine dab-detr deformable_detr deimv2 detr edgetam edgetam_mask_decoder
        edgetam_prompt_encoder edgetam_video_mask_decoder edgetam_video_prompt_encoder
        edgetam_vision_model grounding-dino lw_detr mask2former maskformer mm-grounding-dino
        omdet-turbo oneformer pp_doclayout_v3 pp_doclayout_v4 rf_detr rt_detr rt_detr_v2 sam2
        sam2_mask_decoder sam2_prompt_encoder sam2_video_mask_decoder sam2_video_prompt_encoder
        sam2_vision_model sam3_detr_decoder sam3_detr_encoder sam3_geometry_encoder
        sam3_lite_text_detr_decoder sam3_lite_text_detr_encoder sam3_lite_text_geometry_encoder
        sam3_lite_text_mask_decoder sam3_mask_decoder sam3_tracker sam3_tracker_mask_decoder
        sam3_tracker_prompt_encoder sam3_tracker_video_mask_decoder
        sam3_tracker_video_prompt_encoder sam_hq_mask_decoder sam_hq_prompt_encoder
        sam_mask_decoder sam_prompt_encoder table-transformer
    """,
    "relative position buckets": """
        cpmant longt5 mt5 pix2struct pix2struct_text_model pop2piano prophetnet
        switch_transformers t5 umt5
    """,
    "learned absolute positions and relative position buckets":
        "layoutlmv2 layoutlmv3 layoutxlm mpnet pp_doclayout_v2 udop",
    "learned absolute positions and sinusoids of boxes": "bros",
    "relative positions of Transformer-XL": """
        fastspeech2_conformer fastspeech2_conformer_with_hifigan funnel gemma3n_audio gemma4_audio
        nemotron3_5_asr nemotron_asr_streaming nemotron_asr_streaming_encoder parakeet_ctc
        parakeet_encoder parakeet_rnnt parakeet_tdt xlnet
    """,
    "learned relative positions": """
        deberta deberta-v2 dinat granite_speech5_ctc granite_speech5_encoder
        granite_speech_encoder granite_speech_plus_encoder levit phi4_multimodal_audio
        seamless_m4t_v2 vits
    """,
    "relative position biases": "inkling2_loop_text inkling2_text inkling_mm_model inkling_text",
    "relative position biases of windows (Swin)": """
        beit clap_audio_model data2vec-vision donut-swin maskformer-swin swin swin2sr swinv2
        zoedepth
    """,
    "relative positions by rows and columns": """
        deepseek_ocr2_sam_vision_model got_ocr2_vision pp_chart2table_vision pp_formulanet_vision
        sam sam_hq sam_hq_vision_model sam_vision_model seggpt slanext slanext_vision
        unlimited_ocr_sam_vision_model vitdet vitmatte
    """,
    "positions from a convolution": """
        data2vec-audio higgs_audio_v2_tokenizer hubert omniasr_audio omniasr_ctc sew unispeech
        unispeech-sat wav2vec2 xcodec
    """,
    "positions from a convolution and learned relative positions": "sew-d wavlm",
    "a convolution and relative positions in the encoder, sinusoids in the decoder": "speecht5",
    "ALiBi": "bloom btlm gpt_refact jais mosaic_gpt mpt",
    "no position encoding (recurrent)": "falcon_mamba mamba mamba2 rwkv rwkv5 rwkv6 rwkv7 xlstm",
    "no position encoding": """
        blip_2_qformer flava_multimodal_model gemma4_unified_audio idefics2_perceiver
        idefics_perciever inkling_audio inkling_vision jamba mobilevit mobilevitv2 molmo2_adapter
        moonshine_streaming_encoder moshi_depth nemotron_h nemotron_h_omni vibevoice_diffusion
        wavtokenizer wavtokenizer_encoder zamba
    """,
    "no position encoding (its latent attention has none)": "kimi_linear",
    "no position encoding (convolutions)": """
        align_vision_model apertus1p5_vision_tokenizer bit chameleon_vqgan convnext convnextv2 cvt
        dac dinov3_convnext efficientnet emu3_vqgan encodec fastspeech2_conformer_hifigan
        flava_image_codebook florence_vision focalnet gemma3n_vision glm_image_vqmodel glpn
        hgnet_v2 janus_vqgan mobilenet_v1 mobilenet_v2 muse_spark_audio poolformer pp_lcnet
        pp_lcnet_v3 pp_lcnet_v4 pp_ocrv5_mobile_det pp_ocrv5_mobile_rec pp_ocrv5_server_det
        pp_ocrv5_server_rec pp_ocrv6_medium_det pp_ocrv6_small_det pp_ocrv6_small_rec
        pp_ocrv6_tiny_rec pvt_v2 qwen2_5_omni_bigvgan regnet resnet rt_detr_resnet sapiens2_head
        segformer slanet speecht5_hifigan superpoint swiftformer textnet univnet upernet uvdoc
        uvdoc_backbone vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder
        vibevoice_acoustic_tokenizer_encoder
    """,
    "angles projected from keypoints by a learned matrix": "lightglue",
    "positions projected from keypoints": "superglue",
    "the positions of a model of timm, which the config does not describe":
        "timm_backbone timm_wrapper",
}
# fmt: on

WITHOUT_ROPE: dict[str, str] = {
    name: kind for kind, names in _KINDS.items() for name in names.split()
}
"""Model types that are known to have no rope, and what they have."""
