# SPDX-License-Identifier: Apache-2.0
# What `pip install .` (scikit-build-core) puts into the wheel: the library beside the Python files, the command.

# A wheel holds no links: one file, named as python/weft/_find.py looks for it.
set_target_properties(weft PROPERTIES VERSION ${PROJECT_VERSION_MAJOR})
install(TARGETS weft LIBRARY DESTINATION weft COMPONENT python NAMELINK_SKIP)
install(TARGETS weft_cli RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
