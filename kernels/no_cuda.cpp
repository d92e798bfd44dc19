// Stands in, at link time, for the CUDA kernels of a build that has none.
#include <stdexcept>

#include "kernels/adam/adam.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode.h"
#include "kernels/column_sum/column_sum.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/draw/draw.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gemm/gemm.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/muon/muon.h"
#include "kernels/query_key/query_key.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

namespace longstride::kernels::cuda {
namespace {

[[noreturn]] void absent() { throw std::runtime_error("this build of Longstride has no CUDA kernels"); }

}  // namespace

void adam(const AdamArgs&, const Launch&) { absent(); }
void add(const AddArgs&, const Launch&) { absent(); }
void append(const AppendArgs&, const Launch&) { absent(); }
void attention(const AttentionArgs&, const Launch&) { absent(); }
void attention_backward(const AttentionBackwardArgs&, const Launch&) { absent(); }
std::size_t attention_workspace_bytes(const AttentionArgs&) { absent(); }
std::size_t attention_workspace_bytes(const AttentionBackwardArgs&) { absent(); }
void average(const AverageArgs&, const Launch&) { absent(); }
void column_sum(const ColumnSumArgs&, const Launch&) { absent(); }
void copy(const CopyArgs&, const Launch&) { absent(); }
void copy_rows(const CopyRowsArgs&, const Launch&) { absent(); }
void decode(const DecodeArgs&, const Launch&) { absent(); }
void draw(const DrawArgs&, const Launch&) { absent(); }
void dropout(const DropoutArgs&, const Launch&) { absent(); }
void dropout_add_layer_norm(const DropoutAddLayerNormArgs&, const Launch&) { absent(); }
void embedding(const EmbeddingArgs&, const Launch&) { absent(); }
void embedding_backward(const EmbeddingBackwardArgs&, const Launch&) { absent(); }
void fill_zero(const FillZeroArgs&, const Launch&) { absent(); }
void gelu(const GeluArgs&, const Launch&) { absent(); }
void gelu_backward(const GeluBackwardArgs&, const Launch&) { absent(); }
void gemm(const GemmArgs&, const Launch&) { absent(); }
void layer_norm(const LayerNormArgs&, const Launch&) { absent(); }
void layer_norm_backward(const LayerNormBackwardArgs&, const Launch&) { absent(); }
void layer_norm_backward_dropout(const LayerNormBackwardDropoutArgs&, const Launch&) { absent(); }
void nesterov(const NesterovArgs&, const Launch&) { absent(); }
void normalise(const NormaliseArgs&, const Launch&) { absent(); }
void optimizer_scalars(const OptimizerScalarsArgs&, const Launch&) { absent(); }
void orthogonal_step(const OrthogonalStepArgs&, const Launch&) { absent(); }
void polynomial(const PolynomialArgs&, const Launch&) { absent(); }
void query_key(const QueryKeyArgs&, const Launch&) { absent(); }
void query_key_backward(const QueryKeyBackwardArgs&, const Launch&) { absent(); }
void softmax_cross_entropy(const SoftmaxCrossEntropyArgs&, const Launch&) { absent(); }
void start_scalars(const StartScalarsArgs&, const Launch&) { absent(); }
void sum(const SumArgs&, const Launch&) { absent(); }

}  // namespace longstride::kernels::cuda
