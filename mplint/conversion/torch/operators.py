"""What the names of ATen operators say: which are heavy, hand values on, add up in half, or fill in a number."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Matrix products and convolutions, as programs hold them before and after decompositions.
HEAVY = _names("""
    linear matmul mm bmm addmm baddbmm addbmm mv addmv einsum tensordot bilinear _trilinear linalg_vecdot linalg_multi_dot chain_matmul
    conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution _addmm_activation
    scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_efficient_attention _native_multi_head_attention
    lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
""")
RECURRENT = _names("lstm gru rnn_tanh rnn_relu")
# Operators that ask for the form of a tensor and not for its values.
FORM = _names("sym_size sym_numel sym_stride sym_storage_offset sym_is_contiguous")
# Operators whose results are values of their inputs: what goes in rounded comes out rounded.
EXACT = _names("""
    view _unsafe_view reshape permute transpose t numpy_T mT movedim squeeze unsqueeze expand expand_as view_as reshape_as flatten unflatten
    slice select narrow diagonal cat concat stack split split_with_sizes chunk unbind unfold clone contiguous alias detach lift_fresh_copy
    relu neg abs where maximum minimum amax amin max min sort topk gather index_select index embedding
    flip roll repeat repeat_interleave tile max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices
    adaptive_max_pool1d adaptive_max_pool2d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d pixel_shuffle pixel_unshuffle channel_shuffle im2col swapaxes adjoint
    tril triu slice_scatter select_scatter pad constant_pad_nd atleast_1d
""")
# Operators that write a number where others stand: numbers beyond the range become the largest finite one.
FILLING = _names("full full_like new_full scalar_tensor masked_fill fill constant_pad_nd pad")
LIMITING = _names("clamp clamp_min clamp_max hardtanh where")
# Operators in which a small number stands for more than its size: it keeps a divisor from being 0, a logarithm finite.
GUARDING = _names("""
    add sub rsub clamp clamp_min maximum minimum full full_like new_full scalar_tensor masked_fill where hardtanh threshold nan_to_num
    cosine_similarity pairwise_distance cdist binary_cross_entropy
""")
# Operators that add up element by element, in half itself on some devices.
ADDING_UP = _names("""
    cumsum cumprod logcumsumexp scatter_add scatter_reduce index_add index_reduce segment_reduce embedding_bag _embedding_bag
    _embedding_bag_forward_only histc bincount trapezoid cumulative_trapezoid
""")
# What commonly bounds the argument of an exp: the maximum taken off, a negative square, a limit.
BOUNDING = _names("sub neg clamp clamp_max minimum tanh sigmoid log_softmax _log_softmax softmax _softmax")
# What only a decomposed program holds: autocast does not know these names.
DECOMPOSED = _names("""
    aten.convolution.default aten._softmax.default aten._log_softmax.default aten.native_layer_norm.default aten.native_group_norm.default
    aten._native_batch_norm_legit_no_training.default aten._native_batch_norm_legit_functional.default aten._to_copy.default
""")


def base_name(target: object) -> str:
    """The operator of aten.conv2d.default: "conv2d"; the name itself of anything else."""
    parts = str(target).split(".")
    return parts[1] if len(parts) > 2 and parts[0] in ("aten", "prims") else str(target)
