// Stands in, at link time, for the CUDA kernels of a build that has none.
#include <stdexcept>

#include "kernels/adam.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/decode.h"
#include "kernels/column_sum.h"
#include "kernels/copy_rows.h"
#include "kernels/draw.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "kernels/generate/generate.h"
#include "kernels/layer_norm.h"
#include "kernels/muon.h"
#include "kernels/query_key.h"
#include "kernels/softmax_cross_entropy.h"

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
void generate(const GenerateArgs&, const Launch&) { absent(); }
bool generates(const GenerateShape&) { return false; }
std::size_t generator_bytes(const GenerateShape&) { absent(); }
std::shared_ptr<const Generator> make_generator(const GenerateShape&, const GenerateWeights&, void*, const Launch&) {
  absent();
}
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
