# mplint in a container: docker run --rm --network none --volume "$PWD:/code:ro" mplint check .
FROM python:3.12-slim
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY mplint ./mplint
COPY rules ./rules
RUN pip install --no-cache-dir ".[onnx,keras,torch]" \
    && useradd --create-home mplint \
    && install --directory --owner mplint /cache
ENV MPLINT_CACHE_DIR=/cache
WORKDIR /code
USER mplint
ENTRYPOINT ["mplint"]
CMD ["check", "."]
