"""Data: sources of text and of images, vocabularies, objectives, arrangements, and the task that puts them together."""

from __future__ import annotations

from meshtf.train.data.arrangement import Concatenate, Pack, Pad
from meshtf.train.data.array_task import ArrayTask
from meshtf.train.data.drawn_shapes import drawn_objects, drawn_regions
from meshtf.train.data.images.augmentations.auto_augment import AutoAugment
from meshtf.train.data.images.augmentations.colour_jitter import ColourJitter
from meshtf.train.data.images.augmentations.crops import CentralCrop, DistortedCrop
from meshtf.train.data.images.augmentations.flip import Flip
from meshtf.train.data.images.augmentations.mixes import CutMix, Mixup
from meshtf.train.data.images.augmentations.rand_augment import RandAugment
from meshtf.train.data.images.augmentations.random_erasing import RandomErasing
from meshtf.train.data.images.image_format import ImageFormat
from meshtf.train.data.images.image_task import ImageTask
from meshtf.train.data.images.images_on_paper import images_on_paper
from meshtf.train.data.images.sources.class_folders import ClassFolders
from meshtf.train.data.images.sources.huggingface_images import HuggingFaceImages
from meshtf.train.data.images.sources.image_arrays import ImageArrays
from meshtf.train.data.images.sources.image_records import ImageRecords
from meshtf.train.data.images.sources.image_tars import ImageTars
from meshtf.train.data.images.sources.tensorflow_dataset_images import TensorflowDatasetImages
from meshtf.train.data.labelled_text_task import LabelledTextTask
from meshtf.train.data.mixture import Mixture
from meshtf.train.data.objectives.language_model import LanguageModel
from meshtf.train.data.objectives.masked_language_model import MaskedLanguageModel
from meshtf.train.data.objectives.prefix_language_model import PrefixLanguageModel
from meshtf.train.data.objectives.span_corruption import SpanCorruption
from meshtf.train.data.objectives.text_continuations import TextContinuations
from meshtf.train.data.objectives.text_pairs import TextPairs
from meshtf.train.data.printed_letters import printed_letters
from meshtf.train.data.sources.huggingface_dataset import HuggingFaceDataset
from meshtf.train.data.sources.json_lines import JsonLines
from meshtf.train.data.sources.labelled_files import LabelledFiles
from meshtf.train.data.sources.number_words import NumberWords
from meshtf.train.data.sources.parquet_files import ParquetFiles
from meshtf.train.data.sources.python_library import python_library
from meshtf.train.data.sources.seqio_task import SeqioTask
from meshtf.train.data.sources.tensorflow_dataset import TensorflowDataset
from meshtf.train.data.sources.text_files import TextFiles
from meshtf.train.data.sources.tfrecords import TfRecords
from meshtf.train.data.sources.token_records import TokenRecords
from meshtf.train.data.text_task import TextTask
from meshtf.train.data.vocabularies.byte_vocabulary import ByteVocabulary
from meshtf.train.data.vocabularies.huggingface_vocabulary import HuggingFaceVocabulary
from meshtf.train.data.vocabularies.sentencepiece_vocabulary import SentencePieceVocabulary
from meshtf.train.data.vocabularies.train_sentencepiece import train_sentencepiece
from meshtf.train.data.vocabularies.vocabulary import Vocabulary
from meshtf.train.data.vocabularies.word_vocabulary import WordVocabulary

__all__ = [
    "ArrayTask",
    "AutoAugment",
    "ByteVocabulary",
    "CentralCrop",
    "ClassFolders",
    "ColourJitter",
    "Concatenate",
    "CutMix",
    "DistortedCrop",
    "Flip",
    "HuggingFaceDataset",
    "HuggingFaceImages",
    "HuggingFaceVocabulary",
    "ImageArrays",
    "ImageFormat",
    "ImageRecords",
    "ImageTars",
    "ImageTask",
    "JsonLines",
    "LabelledFiles",
    "LabelledTextTask",
    "LanguageModel",
    "MaskedLanguageModel",
    "Mixture",
    "Mixup",
    "NumberWords",
    "Pack",
    "Pad",
    "ParquetFiles",
    "PrefixLanguageModel",
    "RandAugment",
    "RandomErasing",
    "SentencePieceVocabulary",
    "SeqioTask",
    "SpanCorruption",
    "TensorflowDataset",
    "TensorflowDatasetImages",
    "TextContinuations",
    "TextFiles",
    "TextPairs",
    "TextTask",
    "TfRecords",
    "TokenRecords",
    "Vocabulary",
    "WordVocabulary",
    "drawn_objects",
    "drawn_regions",
    "images_on_paper",
    "printed_letters",
    "python_library",
    "train_sentencepiece",
]
