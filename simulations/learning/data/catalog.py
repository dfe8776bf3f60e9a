"""The files of the known data sets: names, sizes, checksums and where they come from.

Licences are the distributors' business: read theirs before handing a file on.

Data only; must not read anything.
"""

from __future__ import annotations

from simulations.learning.data.files import DataFile

_MNIST_ORIGIN = "yann.lecun.com/exdb/mnist, or a mirror such as github.com/fgnt/mnist"
_FASHION_ORIGIN = "github.com/zalandoresearch/fashion-mnist, data/fashion"
_QMNIST_ORIGIN = "github.com/facebookresearch/qmnist"
_CIFAR_ORIGIN = "www.cs.toronto.edu/~kriz/cifar.html"
_MOBY_ORIGIN = (
    "the Moby plays (github.com/okfn/shakespeare-material, texts/moby), written as CSV with the "
    "columns play, act, scene, speech, speaker, line: one row per line that is not blank, without "
    "stage directions"
)
_NAMES_ORIGIN = "github.com/spro/practical-pytorch, data/names"
_ADULT_ORIGIN = "the UCI repository, archive.ics.uci.edu/dataset/2/adult (unpacked there)"
_BANK_ORIGIN = "the UCI repository, archive.ics.uci.edu/dataset/222/bank+marketing (unpacked there)"
_KDD99_ORIGIN = "the UCI repository, archive.ics.uci.edu/dataset/130/kdd+cup+1999+data"

MNIST_TRAIN_IMAGES = DataFile(
    path="mnist/train-images-idx3-ubyte.gz",
    size_bytes=9_912_422,
    sha256="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    unpacked_sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    origin=_MNIST_ORIGIN,
)

MNIST_TRAIN_LABELS = DataFile(
    path="mnist/train-labels-idx1-ubyte.gz",
    size_bytes=28_881,
    sha256="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    unpacked_sha256="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    origin=_MNIST_ORIGIN,
)

MNIST_TEST_IMAGES = DataFile(
    path="mnist/t10k-images-idx3-ubyte.gz",
    size_bytes=1_648_877,
    sha256="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    unpacked_sha256="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    origin=_MNIST_ORIGIN,
)

MNIST_TEST_LABELS = DataFile(
    path="mnist/t10k-labels-idx1-ubyte.gz",
    size_bytes=4_542,
    sha256="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    unpacked_sha256="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    origin=_MNIST_ORIGIN,
)

FASHION_TRAIN_IMAGES = DataFile(
    path="fashion-mnist/train-images-idx3-ubyte.gz",
    size_bytes=26_421_880,
    sha256="3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    unpacked_sha256="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    origin=_FASHION_ORIGIN,
)

FASHION_TRAIN_LABELS = DataFile(
    path="fashion-mnist/train-labels-idx1-ubyte.gz",
    size_bytes=29_515,
    sha256="a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    unpacked_sha256="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    origin=_FASHION_ORIGIN,
)

FASHION_TEST_IMAGES = DataFile(
    path="fashion-mnist/t10k-images-idx3-ubyte.gz",
    size_bytes=4_422_102,
    sha256="346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    unpacked_sha256="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    origin=_FASHION_ORIGIN,
)

FASHION_TEST_LABELS = DataFile(
    path="fashion-mnist/t10k-labels-idx1-ubyte.gz",
    size_bytes=5_148,
    sha256="67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    unpacked_sha256="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    origin=_FASHION_ORIGIN,
)

QMNIST_TRAIN = DataFile(
    path="qmnist/qmnist-train-labels-idx2-int.gz",
    size_bytes=463_024,
    sha256="2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
    unpacked_sha256="bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5",
    origin=_QMNIST_ORIGIN,
)

QMNIST_TEST = DataFile(
    path="qmnist/qmnist-test-labels-idx2-int.gz",
    size_bytes=526_800,
    sha256="9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",
    unpacked_sha256="92d0ccb8c25f9c6534270fb4be7e1d24a1c6d315edfc8a638bfbd31c70f362dd",
    origin=_QMNIST_ORIGIN,
)

CIFAR10_PYTHON = DataFile(
    path="cifar10/cifar-10-python.tar.gz",
    size_bytes=170_498_071,
    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    origin=_CIFAR_ORIGIN,
)

CIFAR10_BINARY = DataFile(
    path="cifar10/cifar-10-binary.tar.gz",
    size_bytes=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    origin=_CIFAR_ORIGIN,
)

CIFAR100_PYTHON = DataFile(
    path="cifar100/cifar-100-python.tar.gz",
    size_bytes=169_001_437,
    sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    origin=_CIFAR_ORIGIN,
)

_CIFAR_BATCHES = {
    "data_batch_1": (
        31_035_704,
        "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
    ),
    "data_batch_2": (
        31_035_320,
        "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
    ),
    "data_batch_3": (
        31_035_999,
        "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
    ),
    "data_batch_4": (
        31_035_696,
        "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
    ),
    "data_batch_5": (
        31_035_623,
        "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
    ),
    "test_batch": (31_035_526, "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831"),
}

CIFAR10_PYTHON_FILES = {
    name: DataFile(
        path=f"cifar10/cifar-10-batches-py/{name}",
        size_bytes=size,
        sha256=sha256,
        origin=f"inside cifar-10-python.tar.gz from {_CIFAR_ORIGIN}",
    )
    for name, (size, sha256) in _CIFAR_BATCHES.items()
}
"""The files that the Python archive unpacks to, training batches first."""

SHAKESPEARE = DataFile(
    path="shakespeare/moby_lines.csv.gz",
    size_bytes=2_237_452,
    sha256="a66750ae6cb7c557c7bfb78939fd24e6890fe6ce0f7ce6d85472a9de4f82a5fe",
    unpacked_sha256="0714775b70090d4608ab2bf265bd54d2b172be64e2b6b272532bc697bd015d34",
    origin=_MOBY_ORIGIN,
)

TINY_SHAKESPEARE = DataFile(
    path="shakespeare/tinyshakespeare.txt",
    size_bytes=1_115_394,
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    origin="github.com/karpathy/char-rnn, data/tinyshakespeare/input.txt",
)

ADULT_TRAIN = DataFile(
    path="adult/adult.data.gz",
    size_bytes=409_337,
    sha256="fb9b6b419c38dd70d75d31f014b7f0905bf76e9625473c593455e31679a93184",
    unpacked_sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    origin=_ADULT_ORIGIN,
)

ADULT_TEST = DataFile(
    path="adult/adult.test.gz",
    size_bytes=205_510,
    sha256="5dd8e51005f6a86e42f058d66a957721196362cf8e8dde3efc8508532af4a083",
    unpacked_sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    origin=_ADULT_ORIGIN,
)

BANK = DataFile(
    path="bank/bank-full.csv.gz",
    size_bytes=475_203,
    sha256="2cf6b847bc108d650d72750b04817c3a1cba305ebde1fe8f5174d8ac0bdc0d23",
    unpacked_sha256="d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
    origin=_BANK_ORIGIN,
)

KDD99_TRAIN = DataFile(
    path="kdd99/kddcup.data_10_percent.gz",
    size_bytes=2_144_893,
    sha256="7bfaa8cef1350f72842018c32893e2fa4539d57efbb22f998eb74ecefc3da3b4",
    unpacked_sha256="f8c8267ebcd9c0ed1fd7d6277fe5bfff8732e9b7db8e61b873542b2a534b6f9a",
    origin=_KDD99_ORIGIN,
)

KDD99_TEST = DataFile(
    path="kdd99/corrected.gz",
    size_bytes=1_409_035,
    sha256="74f0daef49b242badc09f2adbd457dea6a45b4f77177efbd11216d333651044b",
    unpacked_sha256="547dfb9c0f0dc1d9944219ec79e851191faebaeb8acbfa1cd171c418397052a4",
    origin=_KDD99_ORIGIN,
)

_NAME_FILES = {
    "Arabic": (13_190, "6f424a8dbe51cbbbabab7a57d38b617210125e4e3991f3c657cb79b8f104bafc"),
    "Chinese": (1_246, "09ba8f1f7e38dbc99372d461b26ad4433b811fc6bfa6a3ecca6fe11a9a777465"),
    "Czech": (3_916, "e17ab0ec47616a72c39cb85c783f70c3663ab64488721e5d8378f146d2226be7"),
    "Dutch": (2_351, "924f32b635170eae561f84538632138fc07d4c8bbd70ba3fb980de1ecc4d2af3"),
    "English": (27_125, "9cca037066d3d5989e24bc01801416162de506b5e28e15b7c092a47905d29bf2"),
    "French": (2_178, "81e65b36c60ed5b89a17422f6edcadbb89546f38ad69e960e64e7ba682012a95"),
    "German": (5_610, "7449cd590b97a733e18d613a4155decd77ec35dc5f8aadd7a82204dce4f051db"),
    "Greek": (1_981, "3555b5186de7f401e6d991b088e9e644ca3099116477818c25ab5793801389e6"),
    "Irish": (1_858, "cf8c7013256252a88d2503127b87282a11f21b2ff6db1bded68834c19a1ec058"),
    "Italian": (5_657, "f88414c27d0606a11a678b4859277828c2565d6cc4d9ee932deef6e94f3b35e4"),
    "Japanese": (7_622, "e0e717e114fec3e7eade4d9dabe0067c475f43147e36a22b47902ee76ad9e67f"),
    "Korean": (423, "cd54221ccb362a6cba4c78828838cf3268a0e59744767a37cf6ec4b74036b136"),
    "Polish": (1_165, "45bab898af2f60ed3a728bbf6980e28821011a7caa53227553b5785903a40826"),
    "Portuguese": (554, "50a8735f41f4f73757c8ce5b16cb0275cd86b2b214bcbc8c9805f508cb131c53"),
    "Russian": (85_168, "0cfe53ac18041e8f63666aa77313e0a3ff378facb132abee052d8ebdc8c3d62c"),
    "Scottish": (752, "78d0252711d87d948ea86fe34826c51d2d794a8e52d15b5d6f7b6244d45d62dd"),
    "Spanish": (2_284, "1bcb462ed3316756a85781d68232bddae04498fdddd5d9219c53fd1fbdeba7a7"),
    "Vietnamese": (339, "f3f9e4164ab47601178a6e45b216464a64122f49d05541f24bf18a757253281d"),
}

NAMES = {
    language: DataFile(
        path=f"names/{language}.txt", size_bytes=size, sha256=sha256, origin=_NAMES_ORIGIN
    )
    for language, (size, sha256) in _NAME_FILES.items()
}
"""One file of surnames per language."""

CATALOG: dict[str, tuple[DataFile, ...]] = {
    "mnist": (MNIST_TRAIN_IMAGES, MNIST_TRAIN_LABELS, MNIST_TEST_IMAGES, MNIST_TEST_LABELS),
    "fashion-mnist": (
        FASHION_TRAIN_IMAGES,
        FASHION_TRAIN_LABELS,
        FASHION_TEST_IMAGES,
        FASHION_TEST_LABELS,
    ),
    "qmnist": (QMNIST_TRAIN, QMNIST_TEST),
    "cifar10": tuple(CIFAR10_PYTHON_FILES.values()),
    "cifar100": (CIFAR100_PYTHON,),
    "shakespeare": (SHAKESPEARE,),
    "tinyshakespeare": (TINY_SHAKESPEARE,),
    "names": tuple(NAMES.values()),
    "adult": (ADULT_TRAIN, ADULT_TEST),
    "bank": (BANK,),
    "kdd99": (KDD99_TRAIN, KDD99_TEST),
}
"""All files of each set; "qmnist" only tells who wrote the digits of "mnist", and an archive of
either form will do for "cifar10"."""
