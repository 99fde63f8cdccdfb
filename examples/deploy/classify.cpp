// Classifies the images of Fashion-MNIST with the exported CNN: four threads, with a batch each, on one model.
//
//     c++ -std=c++17 -pthread -I build examples/deploy/classify.cpp -L build -lcnn -Wl,-rpath,build -o build/classify
//     build/classify build

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cnn.h"

// The model with its weights, which are mapped as long as this object lives.
class Model {
public:
    explicit Model(const std::string &weights) {
        const char *error = nullptr;
        if (cnn_init(&model_, weights.c_str(), &error) != CNN_OK) throw std::runtime_error(error);
    }
    ~Model() { cnn_free(&model_); }
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;

    // The scores of `count` images, ten for each. Any number of threads may call this at once.
    std::vector<float> operator()(const std::vector<float> &images, std::int64_t count) const {
        const char *error = nullptr;
        cnn_inputs inputs = {images.data(), {count, 1, 28, 28}};
        cnn_outputs outputs = {};
        std::int64_t bytes = 0;
        if (cnn_plan(&inputs, &outputs, &bytes, &error) != CNN_OK) throw std::runtime_error(error);
        std::vector<float> scores(static_cast<std::size_t>(outputs.output_0_shape[0] * outputs.output_0_shape[1]));
        std::vector<unsigned char> workspace(static_cast<std::size_t>(bytes));
        outputs.output_0 = scores.data();
        if (cnn_run(&model_, &inputs, &outputs, workspace.data(), bytes, &error) != CNN_OK) {
            throw std::runtime_error(error);
        }
        return scores;
    }

private:
    cnn_model model_ = {};
};

static std::vector<unsigned char> content(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("there is no file " + path);
    return std::vector<unsigned char>(std::istreambuf_iterator<char>(file), {});
}

int main(int argc, char **argv) try {
    const std::string folder = argc > 1 ? argv[1] : ".";
    const auto pixels = content(folder + "/images.bin"), labels = content(folder + "/labels.bin");
    const Model model(folder + "/cnn.weights");
    const std::size_t count = labels.size(), threads = 4;
    std::atomic<int> right = 0;

    const auto classify = [&](std::size_t begin, std::size_t end) {
        std::vector<float> images((end - begin) * 784);
        std::transform(pixels.begin() + static_cast<std::ptrdiff_t>(begin * 784),
                       pixels.begin() + static_cast<std::ptrdiff_t>(end * 784), images.begin(),
                       [](unsigned char pixel) { return static_cast<float>(pixel) / 255; });
        const auto scores = model(images, static_cast<std::int64_t>(end - begin));
        for (std::size_t i = begin; i != end; i++) {
            const auto row = scores.begin() + static_cast<std::ptrdiff_t>((i - begin) * 10);
            right += std::max_element(row, row + 10) - row == labels[i];
        }
    };

    std::vector<std::thread> running;
    for (std::size_t t = 0; t != threads; t++) {
        running.emplace_back(classify, count * t / threads, count * (t + 1) / threads);
    }
    for (auto &thread : running) thread.join();
    std::cout << right << " of " << count << " images are classified right\n";
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
